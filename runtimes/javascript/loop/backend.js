// The interface between the hierarchical loop and a runtime. Tokens go in, scores come out; embeddings and KV caches
// stay inside the runtime.
//
//     groups --macro--> Readout: logits, pStop, features --microBegin--> micro(token) --> logits, pStop
//               |                                                            ^               |
//               +-- appends one KV slot a group                              +---------------+

/** @typedef {readonly number[]} Group  The 1..maxGroupTokens tokens that share a slot. */

/** @import { ToolDefinition } from "../calls/catalogue.js" */
/** @import { Certainty } from "./certainty.js" */
/** @import { Recommended } from "./dial.js" */
/** @import { DraftIndex } from "../drafts/draft_index.js" */
/** @import { Costs } from "../drafts/drafting.js" */

/**
 * @typedef {object} ModelInfo  Facts about a loaded model.
 * @property {string} provider  "cpu", "wasm" or "webgpu"
 * @property {string} precision  of the stored weights
 * @property {number} vocabSize
 * @property {number} hiddenSize
 * @property {number} maxGroupTokens  most tokens one group may hold; 1: a plain model, which makes no micro steps
 * @property {"token" | "slot"} positionRule
 * @property {"before" | "after"} stopRule
 * @property {number} cacheSlots  slots that the KV cache may hold
 * @property {number} contextLength  positions the base was trained for; a slot's position stays below it
 * @property {readonly number[]} eosIds
 * @property {readonly number[] | null} draftVocab  token id of each micro logit; null: the whole vocabulary
 * @property {number} kvBytesPerSlot
 * @property {Recommended} recommended  the defaults of mode and confidence
 * @property {boolean} [firstCallHasNoGaps]  positions of a call into the empty cache must be 0, 1, 2, ...
 * @property {ToolDefinition[]} [tools]  its answers call these
 * @property {boolean} [editsPrompt]  its answers are its prompts put right, and are held to that
 * @property {readonly string[]} [copiedFields]  of its JSON answers: their strings are spans of the prompt
 * @property {Certainty | null} [certainty]  coefficients of an answer's certainty; null: not measured
 * @property {DraftIndex | null} [draftIndex]  what usually follows what in its answers
 * @property {boolean} [pairsRows]  each call of the base has an even number of slots, and reads out an even number of rows
 * @property {Costs} [draftCosts]  of drafted rows and micro steps
 */

/**
 * @typedef {object} Readout  The base's output at the chosen rows.
 * @property {Float32Array[]} logits  a row: [vocab]
 * @property {ArrayLike<number>} pStop  probability that no further token should join the next group after its first
 * @property {unknown[]} features  a row: for `microBegin`, opaque to the loop
 */

/**
 * @typedef {object} MicroReadout
 * @property {Float32Array} logits  [vocab] or [draftVocab]
 * @property {number} pStop  rule "before": probability that the group should end with the token that these logits
 *   choose; rule "after": that it should end without it
 */

/**
 * @typedef {object} Backend  A runtime holding one sequence; one call at a time.
 * @property {ModelInfo} info
 * @property {number} slots  KV entries in use
 * @property {(groups: readonly Group[], positions: readonly number[], rows: readonly number[]) => Promise<Readout>} macro
 *   Append one slot per group; read out at `rows` (indices into groups). A call into the empty cache leaves one slot
 *   free, unless its positions are 0, 1, 2, ...
 * @property {(features: unknown) => void} microBegin  Start a group from one row of `Readout.features`.
 * @property {(token: number) => Promise<MicroReadout>} micro  Feed the group's newest token.
 * @property {(slots: number) => void} truncate  Forget every slot from `slots` on; free of cost.
 * @property {() => Promise<void>} close
 */

export {};
