// ONNX Runtime as a backend: three graphs, each with its cache. A plain model has no micro decoder.
//
//     groups --embedder--> embeddings --base, KV cache--> logits, pStop, features
//                                                    features, token --micro decoder--> logits, pStop
import { HamburgerError, InputError } from "../errors.js";
import { UNMEASURED } from "../loop/dial.js";
import { wholeIn } from "../support/values.js";
import { Graph } from "./graph.js";

/** @import { Tensor } from "onnxruntime-common" */
/** @import { Group, ModelInfo } from "../loop/backend.js" */
/** @import { Manifest } from "../bundle/manifest.js" */
/** @import { Runtime, SessionOptions } from "./runtime.js" */

/**
 * @typedef {object} BackendOptions
 * @property {number} [cacheSlots]  most slots of the KV cache; default 4096
 * @property {number} [threads]  default ONNX Runtime's choice
 */

/** @import { DraftIndex } from "../drafts/draft_index.js" */

const DEFAULT_CACHE_SLOTS = 4096;
const BYTES = { float32: 4, float16: 2, int8: 1, int32: 4, int64: 8 };
const NOTHING = new Float32Array(0);

/** A `Backend`. */
export class OnnxBackend {
  /** @type {Graph} */
  #embedder;
  /** @type {Graph} */
  #base;
  /** @type {Graph | undefined} */
  #micro;
  /** @type {Float32Array} [F * d] for the first micro step of a group, nothing for later ones */
  #features = NOTHING;
  #isClosed = false;
  #turn;

  /** @param {ModelInfo} info @param {Graph[]} graphs @param {Runtime["turn"]} turn */
  constructor(info, [embedder, base, micro], turn) {
    this.info = info;
    this.#turn = turn;
    [this.#embedder, this.#base, this.#micro] = [embedder, base, micro];
  }

  /**
   * `cacheSlots`: most slots of the KV cache; `threads`: default ONNX Runtime's choice.
   * @param {Manifest} manifest @param {Runtime} runtime @param {BackendOptions & {draftIndex?: DraftIndex | null}} options
   */
  static async open(manifest, runtime, { cacheSlots, threads, draftIndex = null }) {
    const { model, kv, precision, cache_slots: fixed } = manifest;
    if (cacheSlots !== undefined) wholeIn("cacheSlots", cacheSlots, 1, 2 ** 31);
    if (fixed && cacheSlots !== undefined && cacheSlots !== fixed) {
      throw new InputError(
        `this portable bundle's cache holds ${fixed} slots, not ${cacheSlots}: export it again with --cache-slots ${cacheSlots}`,
      );
    }
    // Products of weights in blocks compute the last row of an odd number by another kernel, which rounds
    // differently. With even numbers a row does not depend on the rows beside it.
    const pairsRows = manifest.flavor === "fused" && precision.block_size > 0;
    const spare = Number(pairsRows); // the last call may have a slot more than it appends
    const slots = fixed || Math.min(cacheSlots ?? DEFAULT_CACHE_SLOTS, model.context_length - spare);
    const session = { force_spinning_stop: "1" }; // the sessions alternate
    /** @type {SessionOptions} */
    const options = { logSeverityLevel: 3, extra: { session } };
    if (threads !== undefined) options.intraOpNumThreads = wholeIn("threads", threads, 1, 1024);
    const isHalf = [precision.base, precision.head, precision.graft].includes("fp16");
    // without 16-bit weights, folding would only copy the token embeddings
    const unfolded = { session, optimization: { disable_specified_optimizers: "ConstantFolding" } };
    const lean = isHalf ? options : { ...options, extra: unfolded };
    const micro = manifest.graphs.find(({ name }) => name === "micro_decoder");
    const entries = Number(micro?.inputs.find(({ name }) => name === "past_key.0")?.shape[2]);
    /** @type {Graph[]} */
    const graphs = [];
    try {
      graphs.push(await Graph.open(runtime, manifest, "embedder", 0, lean));
      graphs.push(await Graph.open(runtime, manifest, "base", slots + spare, options));
      if (micro) graphs.push(await Graph.open(runtime, manifest, "micro_decoder", entries, lean));
    } catch (error) {
      for (const graph of graphs) await graph.close();
      throw error;
    }
    return new OnnxBackend(
      {
        provider: runtime.provider,
        precision: precision.base,
        vocabSize: model.vocab_size,
        hiddenSize: model.hidden_size,
        maxGroupTokens: model.max_group_tokens,
        positionRule: model.position_rule,
        stopRule: model.stop_rule,
        cacheSlots: slots,
        contextLength: model.context_length,
        eosIds: model.eos_ids,
        draftVocab: model.draft_vocab ?? null,
        kvBytesPerSlot: 2 * kv.layers * kv.kv_heads * kv.head_size * BYTES[kv.dtype],
        recommended: manifest.recommended ?? UNMEASURED,
        // WebGPU's attention was only tested without gaps in the positions of a text's first call
        firstCallHasNoGaps: runtime.provider === "webgpu",
        editsPrompt: manifest.edits_prompt ?? false,
        copiedFields: manifest.copied_fields ?? [],
        tools: manifest.tools ?? [],
        certainty: manifest.certainty ?? null,
        draftIndex,
        pairsRows,
        draftCosts: manifest.draft_costs,
      },
      graphs,
      runtime.turn,
    );
  }

  get slots() {
    return this.#cache(this.#base).used;
  }

  /** @param {readonly Group[]} groups @param {readonly number[]} positions @param {readonly number[]} rows */
  async macro(groups, positions, rows) {
    await this.#turn?.();
    this.#checkOpen();
    const [appended, read] = [groups.length, rows.length];
    if (this.info.pairsRows && appended % 2) { // the next call overwrites this slot
      groups = [...groups, groups[appended - 1].slice(0, 1)];
      positions = [...positions, Math.min(positions[appended - 1] + 1, this.info.contextLength - 1)];
    }
    if (this.info.pairsRows && read % 2) rows = [...rows, rows[read - 1]];
    const width = this.info.hiddenSize;
    const embeddings = new Float32Array(groups.length * width);
    for (let start = 0, end; start < groups.length; start = end) {
      // a run of single tokens is one call, each merged group its own: the result depends on no other group
      const size = groups[start].length;
      for (end = start + 1; size === 1 && groups[end]?.length === 1; ) end++;
      const tokens = groups.slice(start, end).flat();
      const { embeddings: some } = await this.#embedder.run({ tokens: [tokens, [end - start, size]] });
      embeddings.set(floats(some), start * width);
    }
    const results = await this.#base.run(
      {
        embeddings: [embeddings, [1, groups.length, width]],
        positions: [positions, [1, groups.length]],
        rows: [rows, [rows.length]],
      },
      groups.length,
    );
    this.truncate(this.slots - (groups.length - appended));
    const [logits, features] = [results.logits, results.features].map((all) => {
      const data = floats(all);
      const length = data.length / rows.length;
      return rows.slice(0, read).map((_, i) => data.subarray(i * length, (i + 1) * length));
    });
    return { logits, pStop: floats(results.p_stop).subarray(0, read), features };
  }

  /** @param {unknown} features  [F * d] */
  microBegin(features) {
    this.#features = /** @type {Float32Array} */ (features);
    this.#cache(this.#microDecoder).used = 0;
  }

  /** @param {number} token */
  async micro(token) {
    this.#checkOpen();
    const width = this.info.hiddenSize;
    const count = this.#features.length / width;
    const { logits, p_stop } = await this.#microDecoder.run(
      { features: [this.#features, [count, width]], token: [[token], [1]] },
      count + 1,
    );
    this.#features = NOTHING;
    return { logits: floats(logits), pStop: floats(p_stop)[0] };
  }

  /** @param {number} slots */
  truncate(slots) {
    this.#cache(this.#base).used = slots;
  }

  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const graph of [this.#embedder, this.#base, this.#micro]) await graph?.close();
  }

  get #microDecoder() {
    return /** @type {Graph} */ (this.#micro); // a plain model makes no micro steps
  }

  /** @param {Graph} graph */
  #cache(graph) {
    return /** @type {import("./cache.js").Cache} */ (graph.cache);
  }

  #checkOpen() {
    if (this.#isClosed) throw new HamburgerError("this model is closed: load it again");
  }
}

/** @param {Tensor} tensor */
function floats(tensor) {
  return /** @type {Float32Array} */ (tensor.data);
}
