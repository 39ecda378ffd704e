// Runs a hamburger-edge bundle. The words are those of the contract: a *macro step* (a forward of the base)
// says a *group* of tokens, which takes one *slot* of the KV cache; *micro steps* add tokens to the group.
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { Graph } from "./graph.mjs";
import { Text } from "./text.mjs";

const FORMAT = 2;
const CHUNK = 256; // most groups in one call while a prompt is read: bounds memory, not the result
const MOST_SLOTS = 2048; // cache of a fused bundle unless `capacity` is given

/** Index of the highest score, the first one if several are equal: greedy decoding. */
function choose(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

export class Hamburger {
  #model; // manifest.model
  #text;
  #embedder;
  #base;
  #micro;
  #count = 0; // tokens in the cache
  #pending = null; // the newest group while it is said, but not in the cache yet
  #known = []; // the messages that cache and `pending` hold; none: the next call begins with an empty cache
  #newest = null; // their newest token
  #isBusy = false;

  /** Opens a bundle. `capacity`: slots of the cache; `threads`: ONNX Runtime decides where it is left out. */
  static async load(folder, { capacity, threads } = {}) {
    const readJson = async (file) => {
      const source = await readFile(path.join(folder, file), "utf8").catch(() => null);
      if (source === null) throw new Error(`the bundle has no ${file}: ${folder}`);
      try {
        return JSON.parse(source);
      } catch (error) {
        throw new Error(`${file} is damaged: ${error.message}`);
      }
    };
    const manifest = await readJson("manifest.json");
    if (manifest.kind !== "hamburger-edge bundle") throw new Error(`not a hamburger-edge bundle: ${folder}`);
    if (manifest.format !== FORMAT) {
      throw new Error(`bundle format ${manifest.format} is not known here, only ${FORMAT}: ${folder}`);
    }
    if (manifest.flavor === "gguf") throw new Error(`the bundle has GGUF files, no ONNX graphs: ${folder}`);
    for (const file of manifest.files.filter((file) => !file.path.endsWith(".gguf"))) {
      const found = await stat(path.join(folder, file.path)).catch(() => {
        throw new Error(`the bundle has no ${file.path}: ${folder}`);
      });
      if (found.size !== file.bytes) throw new Error(`${file.path}: ${found.size} bytes, not ${file.bytes}`);
    }
    const fixed = manifest.flavor === "portable" ? manifest.cache_length : null;
    const slots = capacity ?? fixed ?? Math.min(MOST_SLOTS, manifest.model.context_length);
    if (!(Number.isInteger(slots) && slots > 0)) throw new Error(`capacity: ${slots} is not 1 or more`);
    if (threads !== undefined && !(Number.isInteger(threads) && threads > 0)) {
      throw new Error(`threads: ${threads} is not 1 or more`);
    }
    if (fixed && slots !== fixed) throw new Error(`capacity: this portable bundle has ${fixed} slots`);

    const model = new Hamburger();
    model.capacity = slots;
    model.#model = manifest.model;
    const tokenizer = await readJson(manifest.tokenizer);
    model.#text = new Text(tokenizer, manifest.chat_template, manifest.model.eos_ids);
    const session = { force_spinning_stop: "1" }; // the three sessions take turns
    const options = { logSeverityLevel: 3, extra: { session } }; // of the log only errors
    if (threads) options.intraOpNumThreads = threads;
    const lean = { ...options };
    const { base, head, graft } = manifest.precision;
    if (![base, head, graft].includes("fp16")) { // folding would only copy the token embeddings
      lean.extra = { session, optimization: { disable_specified_optimizers: "ConstantFolding" } };
    }
    model.#embedder = await Graph.open(folder, manifest, "embedder", slots, lean);
    model.#base = await Graph.open(folder, manifest, "base", slots, options);
    model.#micro = await Graph.open(folder, manifest, "micro_decoder", slots, lean);
    return model;
  }

  /**
   * Answers a prompt, or the last of `messages` ({role: "system" | "user" | "assistant", content}), greedily.
   * Yields {tokens, text} a macro step. Where the messages begin with those of the call before and its
   * answer, only what is new is fed; a prompt is a conversation of its own.
   */
  async *generate(input, { confidence = 0.8, maxTokens = 256, mode = "trust" } = {}) {
    const messages = typeof input === "string" ? [{ role: "user", content: input }] : input;
    if (this.#isBusy) throw new Error("the model is busy with another answer");
    const refuse = (what) => { throw new Error(what); };
    if (!(confidence >= 0 && confidence <= 1)) refuse(`confidence: ${confidence} is not between 0 and 1`);
    if (!(Number.isInteger(maxTokens) && maxTokens > 0)) refuse(`maxTokens: ${maxTokens} is not 1 or more`);
    if (mode !== "trust" && mode !== "verify") refuse(`mode: ${mode} is neither trust nor verify`);
    if (messages.at(-1)?.role !== "user") refuse("messages: the last one must be the user's");
    if (!messages.at(-1).content) refuse("the prompt is empty: say something");
    this.#isBusy = true;
    try {
      yield* this.#answer(messages, confidence, maxTokens, mode === "verify");
    } finally {
      this.#isBusy = false;
    }
  }

  async close() {
    for (const graph of [this.#embedder, this.#base, this.#micro]) if (!graph.isClosed) await graph.close();
  }

  async *#answer(messages, confidence, maxTokens, isVerify) {
    const { eos_ids: eosIds, max_steps: maxSteps } = this.#model;
    const detokenize = this.#text.detokenizer();
    let scores = await this.#read(messages);
    let said = 0; // tokens
    let answer = "";
    const ends = (group) => eosIds.includes(group.at(-1)) || said + group.length === maxTokens;
    for (;;) {
      let limit = confidence >= 1 ? 1 : Math.min(maxSteps, maxTokens - said);
      if (isVerify) limit = Math.min(limit, this.#room());
      let group = await this.#draft(scores, confidence, limit, isVerify);
      let next = null;
      let isLast;
      if (isVerify && this.#room() > 0 && !ends(group.slice(0, 1))) {
        [group, next] = await this.#verify(group);
        isLast = ends(group);
      } else {
        if (isVerify) group = group.slice(0, 1);
        this.#pending = group;
        isLast = isVerify || ends(group) || !this.#fits(1, group.length);
      }
      said += group.length;
      const text = detokenize(group, isLast);
      answer += text;
      this.#known = [...messages, { role: "assistant", content: answer }]; // also if the caller stops here
      this.#newest = group.at(-1);
      yield { tokens: group, text };
      if (isLast) return;
      this.#known = [];
      scores = next ?? (await this.#macro([group], [0]))[0];
      this.#pending = null;
    }
  }

  /** Feeds what the cache does not hold of `messages`; the scores of what follows them. */
  async #read(messages) {
    const isSame = ({ role, content }, i) => messages[i]?.role === role && messages[i].content === content;
    const isContinued = this.#known.length > 0 && this.#known.every(isSame);
    const tokens = this.#text.conversation(messages, isContinued ? this.#known.length : 0, this.#newest);
    const groups = tokens.map((token) => [token]);
    if (isContinued && this.#pending) groups.unshift(this.#pending);
    const [used, count] = isContinued ? [this.#base.used, this.#count] : [0, 0];
    if (!this.#fits(groups.length, groups.flat().length, used, count)) {
      const wanted = `${groups.length} slots behind ${used} used ones`;
      const limits = `capacity ${this.capacity}, context length ${this.#model.context_length}`;
      throw new Error(`the prompt does not fit: ${wanted}, ${limits}`);
    }
    [this.#base.used, this.#count, this.#known] = [used, count, []];
    let scores;
    for (let start = 0; start < groups.length; start += CHUNK) {
      const chunk = groups.slice(start, start + CHUNK);
      [scores] = await this.#macro(chunk, [chunk.length - 1]);
    }
    this.#pending = null;
    return scores;
  }

  /** One forward of the base: a slot a group; for each of `rows` {logits [vocab], stop, features [F * d]}. */
  async #macro(groups, rows) {
    const embeddings = []; // of each run of groups of one size: [groups * d]
    for (let start = 0, end; start < groups.length; start = end) {
      const size = groups[start].length;
      for (end = start; groups[end]?.length === size;) end++;
      const tokens = groups.slice(start, end).flat();
      const result = await this.#embedder.run({ tokens: [tokens, [end - start, size]] });
      embeddings.push(result.embeddings.data);
    }
    const positions = groups.map((group, i) => {
      this.#count += group.length;
      return this.#model.position_rule === "token" ? this.#count - 1 : this.#base.used + i;
    });
    const width = this.#model.hidden_size;
    const all = new Float32Array(groups.length * width);
    embeddings.reduce((start, some) => (all.set(some, start), start + some.length), 0);
    const values = {
      embeddings: [all, [1, groups.length, width]],
      positions: [positions, [1, groups.length]],
      rows: [rows, [rows.length]],
    };
    const { logits, p_stop, features } = await this.#base.run(values, groups.length);
    const row = ({ data }, i) => {
      const length = data.length / rows.length;
      return data.subarray(i * length, (i + 1) * length);
    };
    return rows.map((_, i) => ({ logits: row(logits, i), stop: p_stop.data[i], features: row(features, i) }));
  }

  /** The next group: its first token from the base's scores, each further one from a micro step. */
  async #draft({ logits, stop, features }, confidence, limit, isVerify) {
    const { hidden_size: width, eos_ids: eosIds, shortlist, stop_rule: stopRule } = this.#model;
    const group = [choose(logits)];
    let isTrying = 1 - stop >= (stopRule === "before" ? confidence : (2 / 3) * confidence);
    let given = features; // [F, d] in the first micro step, [0, d] later
    this.#micro.used = 0;
    while (isTrying && group.length < limit && !eosIds.includes(group.at(-1))) {
      const count = given.length / width;
      const values = { features: [given, [count, width]], token: [[group.at(-1)], [1]] };
      const result = await this.#micro.run(values, count + 1);
      const sure = 1 - result.p_stop.data[0];
      isTrying = sure >= confidence;
      // by rule `after` an unsure token is dropped; a draft keeps it if the base is likely enough to agree
      const isKept = isTrying || stopRule === "before" || (isVerify && sure >= Math.min(confidence, 0.4));
      if (!isKept) break;
      const best = choose(result.logits.data);
      group.push(shortlist ? shortlist[best] : best);
      given = new Float32Array(0);
    }
    return group;
  }

  /** Feeds a draft one token a slot, keeps what the base agrees with; [that, the scores after it]. */
  async #verify(group) {
    const [used, count] = [this.#base.used, this.#count];
    const rows = await this.#macro(group.map((token) => [token]), group.map((_, i) => i));
    let kept = 1;
    while (kept < group.length && choose(rows[kept - 1].logits) === group[kept]) kept++;
    this.#base.used = used + kept; // the newest entries are forgotten by not counting them
    this.#count = count + kept;
    return [group.slice(0, kept), rows[kept - 1]];
  }

  /** Whether so many groups, of so many tokens together, find slots and positions behind the used ones. */
  #fits(groups, tokens, used = this.#base.used, count = this.#count) {
    const positions = this.#model.position_rule === "token" ? count + tokens : used + groups;
    return used + groups <= this.capacity && positions <= this.#model.context_length;
  }

  /** How many groups of one token fit. */
  #room() {
    const positions = this.#model.position_rule === "token" ? this.#count : this.#base.used;
    return Math.min(this.capacity - this.#base.used, this.#model.context_length - positions);
  }
}
