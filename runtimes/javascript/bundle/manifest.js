// The manifest: everything that is needed to run a bundle. A runtime never asks which model it is.
import { BundleError, reason } from "../errors.js";
import { isCertainty } from "../loop/certainty.js";
import { USUAL_COSTS, areUsable } from "../drafts/drafting.js";
import { safeRepr } from "../support/values.js";

/** @import { Markup } from "../chat/template.js" */
/** @import { Certainty } from "../loop/certainty.js" */
/** @import { Mode } from "../loop/dial.js" */
/** @import { Costs } from "../drafts/drafting.js" */

/** @typedef {"float32" | "float16" | "int8" | "int32" | "int64"} DType */

/** @typedef {{name: string, dtype: DType, shape: string[]}} TensorSpec  A dimension is a number, or the name of a varying size. */
/** @typedef {{name: string, file: string, inputs: TensorSpec[], outputs: TensorSpec[]}} GraphSpec */
/** @typedef {{path: string, bytes: number, sha256: string}} FileEntry */

/**
 * @typedef {object} ModelSpec
 * @property {number} vocab_size
 * @property {number} hidden_size
 * @property {number} max_group_tokens
 * @property {"token" | "slot"} position_rule
 * @property {"before" | "after"} stop_rule
 * @property {number} context_length
 * @property {number[]} eos_ids
 * @property {number[] | null} draft_vocab
 */

/**
 * @typedef {object} Manifest
 * @property {number} format
 * @property {string} kind
 * @property {"fused" | "portable" | "gguf"} flavor
 * @property {ModelSpec} model
 * @property {{base: string, head: string, graft: string, block_size: number}} precision
 * @property {{layers: number, kv_heads: number, head_size: number, dtype: DType}} kv
 * @property {number} cache_slots  slots of a portable graph's cache; 0: the runtime chooses
 * @property {GraphSpec[]} graphs
 * @property {FileEntry[]} files
 * @property {string | null} tokenizer
 * @property {Markup | null} chat_template
 * @property {{mode: Mode, confidence: number} | null} [recommended]
 * @property {import("../calls/catalogue.js").ToolDefinition[]} [tools]  functions that its answers call
 * @property {boolean} [edits_prompt]  its answers are its prompts put right, and are held to that
 * @property {string[]} [copied_fields]  of its JSON answers: their strings are spans of the prompt
 * @property {Certainty | null} [certainty]  coefficients of an answer's certainty; null: not measured
 * @property {Costs} [draft_costs]
 */

export const FILE_NAME = "manifest.json";
const KIND = "hamburger-edge bundle";
const FORMAT = 3;
const DTYPES = ["float32", "float16", "int8", "int32", "int64"];

/**
 * Read a manifest, or throw if this package cannot run it.
 * @param {Uint8Array} content
 * @param {string} place  of the bundle, for messages
 * @returns {Manifest & {tokenizer: string}}
 */
export function readManifest(content, place) {
  const data = parseJson(content, `${place}: manifest.json`);
  if (data?.kind !== KIND) throw new BundleError(`${place}: not a bundle's manifest (kind is ${safeRepr(data?.kind)})`);
  if (data.format !== FORMAT) {
    throw new BundleError(
      `${place}: format version ${safeRepr(data.format)}, but this package reads version ${FORMAT}: update it, or export the model again`,
    );
  }
  /** @param {boolean} isSo @param {string} what */
  const need = (isSo, what) => {
    if (!isSo) throw new BundleError(`${place}: manifest.json ${what}: export the model again`);
  };
  need(data.flavor !== "gguf" && Array.isArray(data.graphs) && data.graphs.length > 0, "names no ONNX graphs");
  need(typeof data.tokenizer === "string", "names no tokenizer");
  need(Array.isArray(data.files), "lists no files");
  const listed = new Set(data.files.map((/** @type {FileEntry} */ file) => file.path));
  need(data.files.every(isInside), "lists a file outside the bundle");
  const { model } = data;
  for (const name of ["vocab_size", "hidden_size", "max_group_tokens", "context_length"]) {
    need(Number.isInteger(model?.[name]) && model[name] > 0, `has no usable model.${name}`);
  }
  need(data.merges !== false, "is of an older version");
  for (const name of ["embedder", "base", ...(model.max_group_tokens > 1 ? ["micro_decoder"] : [])]) {
    const graph = data.graphs.find((/** @type {GraphSpec} */ found) => found.name === name);
    need(graph && listed.has(graph.file), `lists no graph ${name}`);
    for (const { dtype } of [...graph.inputs, ...graph.outputs]) need(DTYPES.includes(dtype), `has a tensor of type ${dtype}`);
  }
  need(listed.has(data.tokenizer), "does not list the tokenizer's file");
  need(["token", "slot"].includes(model.position_rule), `has position_rule ${safeRepr(model.position_rule)}`);
  need(["before", "after"].includes(model.stop_rule), `has stop_rule ${safeRepr(model.stop_rule)}`);
  need(Array.isArray(model.eos_ids), "has no model.eos_ids");
  need((data.tools ?? []).every?.((/** @type {any} */ tool) => typeof tool?.function?.name === "string"), "has no usable tools");
  need((data.copied_fields ?? []).every?.((/** @type {any} */ field) => typeof field === "string"), "has no usable copied_fields");
  const costs = data.draft_costs ?? USUAL_COSTS;
  need(areUsable(costs), "has no usable draft_costs");
  need((data.certainty ?? null) === null || isCertainty(data.certainty), "has no usable certainty");
  return data;
}

/** List the files that running the graphs needs, without llama.cpp's. @param {Manifest} manifest */
export function filesToRun(manifest) {
  return manifest.files.filter(({ path }) => !path.endsWith(".gguf"));
}

/** @param {Uint8Array} content @param {string} name @returns {any} */
export function parseJson(content, name) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content));
  } catch (error) {
    throw new BundleError(`${name}: not valid JSON (${reason(error)}): copy the bundle again`, { cause: error });
  }
}

/** @param {FileEntry} file */
function isInside({ path }) {
  const parts = path.split("/");
  return !parts.includes("..") && !parts.includes("") && !/[\\:]/.test(path);
}
