// Decoding along a model's tools, as in hamburger_edge/calls/call_grammar.py: a token is forced if no other text is
// allowed, and the strings of copied fields are spans of the prompt. Near the token limit only tokens are allowed from
// which the answer can still be completed.
import { InputError } from "../errors.js";
import { Unconstrained } from "../structured/constraint.js";
import { Spans, textsOf } from "../structured/spans.js";
import { Vocabulary } from "../structured/vocabulary.js";
import { callStates } from "./call_automaton.js";
import { copying, limited } from "./catalogue.js";
import { spelling } from "./compact_form.js";

/** @import { Tokenizer } from "../chat/tokenizer.js" */
/** @import { States } from "./byte_automaton.js" */
/** @import { CallLimits, Tool } from "./catalogue.js" */

const OVER = -1; // the state after the end token
const MOST_MASKS = 512;

/** Compiles tools with limits and keeps the newest. */
export class CallGrammars {
  /** @type {Vocabulary | null} */
  #vocabulary = null;
  /** @type {{key: string, compiled: CompiledCalls} | null} */
  #newest = null;

  #copying;

  /**
   * @param {readonly Tool[]} tools @param {Tokenizer} tokenizer @param {number} vocabSize @param {readonly number[]} eosIds
   * @param {readonly string[]} copiedFields
   */
  constructor(tools, tokenizer, vocabSize, eosIds, copiedFields) {
    this.tools = tools;
    this.#copying = copying(tools, copiedFields);
    this.tokenizer = tokenizer;
    this.vocabSize = vocabSize;
    this.eosIds = eosIds;
  }

  /** @param {CallLimits} limits @param {number} maxTokens */
  start(limits, maxTokens) {
    const key = JSON.stringify(limits);
    this.#vocabulary ??= new Vocabulary(this.tokenizer, this.vocabSize, this.eosIds);
    if (this.#newest?.key !== key) {
      const states = callStates(limited(this.#copying, limits), limits);
      this.#newest = { key, compiled: new CompiledCalls(states, this.#vocabulary) };
    }
    return new CallGrammar(this.#newest.compiled, maxTokens);
  }
}

/** What may follow in each state, computed on first use. */
class CompiledCalls {
  /** @type {Map<number, Uint8Array>} */
  #allowed = new Map();
  /** @type {Map<number, number[]>} */
  #runs = new Map();

  /** @param {States} states @param {Vocabulary} vocabulary */
  constructor(states, vocabulary) {
    this.states = states;
    this.vocabulary = vocabulary;
    this.bytes = vocabulary.pieces.map((_, token) => vocabulary.tokenizer.bytes([token]));
  }

  /** @param {number} state */
  allowed(state) {
    let mask = this.#allowed.get(state);
    if (!mask) {
      if (this.#allowed.size >= MOST_MASKS) this.#allowed.clear();
      mask = this.allowedWithin(state, Infinity);
      this.#allowed.set(state, mask);
    }
    return mask;
  }

  /** The tokens after which `tokens - 1` more can complete the answer. @param {number} state @param {number} tokens */
  allowedWithin(state, tokens) {
    const { states, bytes, vocabulary } = this;
    const mask = Uint8Array.from(bytes, (text) => {
      const after = text.length ? states.follow(state, text) : 0;
      return after && states.distance[after] < tokens ? 1 : 0;
    });
    for (const id of vocabulary.eosIds) mask[id] = states.isComplete(state) ? 1 : 0;
    return mask;
  }

  /** The tokens that are forced after a state, up to where a longer token may replace the rest. @param {number} state */
  run(state) {
    let run = this.#runs.get(state);
    if (!run) this.#runs.set(state, (run = this.#cut(state, this.#forcedText(state))));
    return run;
  }

  /** @param {number} state */
  #forcedText(state) {
    const { states } = this;
    const text = [];
    while (!states.isComplete(state)) {
      const row = states.row(state);
      const first = row.findIndex(Boolean);
      if (first < 0 || row.some((next, byte) => next !== 0 && byte !== first)) break;
      text.push(first);
      state = row[first];
    }
    return new TextDecoder().decode(new Uint8Array(text));
  }

  /** @param {number} state @param {string} text */
  #cut(state, text) {
    const tokens = this.vocabulary.cut(text);
    const run = [];
    for (let index = 0; index < tokens.length; index++) {
      const longer = this.vocabulary.longerThan(tokens.slice(index));
      const bytes = this.bytes[tokens[index]];
      const after = bytes.length ? this.states.follow(state, bytes) : 0;
      if (!after || (longer.length && longer.some((token) => this.allowed(state)[token]))) break;
      run.push(tokens[index]);
      state = after;
    }
    return run;
  }
}

/** An answer's position. */
export class CallGrammar extends Unconstrained {
  masks = true;
  #compiled;
  #states;
  #state;
  #last;
  /** @type {readonly number[]} forced tokens from here on */
  #run = [];
  /** @type {string | null} copied string so far, a character per byte; null: free, a refused token was consumed */
  #copied = "";
  /** @type {[state: number, run: readonly number[], copied: string | null][]} before each token consumed */
  #history = [];
  /** @type {Uint8Array[]} of the prompt */
  #texts = [];
  /** @type {Map<string, Spans>} marks that may end a string -> spans in its spelling */
  #spans = new Map();
  /** @type {Uint8Array | null} */
  #mask = null;

  /** @param {CompiledCalls} compiled @param {number} maxTokens */
  constructor(compiled, maxTokens) {
    super();
    this.#compiled = compiled;
    this.#states = compiled.states;
    this.#state = compiled.states.start;
    this.#last = maxTokens;
  }

  get forced() {
    if (!this.#run.length && !this.isEnded) this.#run = this.#compiled.run(this.#state);
    return this.#run[0] ?? null;
  }

  get isComplete() {
    return this.#state === OVER || this.#states.isComplete(this.#state);
  }

  get isEnded() {
    return this.#state === OVER || (this.isComplete && !this.#states.row(this.#state).some(Boolean));
  }

  get #left() {
    return this.#last - this.#history.length;
  }

  /** @param {number} token */
  keeps(token) {
    if (this.#state === OVER) return false;
    if (!this.#mask) {
      const isFree = this.#left > this.#states.longestDistance + 1;
      this.#mask = isFree ? this.#compiled.allowed(this.#state) : this.#compiled.allowedWithin(this.#state, this.#left);
    }
    return this.#mask[token] === 1;
  }

  /** @param {number} token */
  allows(token) {
    return this.keeps(token) && (this.#copied === null || this.#copiedAfter(token) !== null);
  }

  /**
   * Return the copied string so far after a token, empty outside of one. Null: the token would end it as no span, or no span
   * that begins so fits into the tokens that are left.
   * @param {number} token
   */
  #copiedAfter(token) {
    const { marks } = this.#states;
    let state = this.#state;
    let ends = marks[state] ?? null;
    let text = this.#copied ?? "";
    if (this.#compiled.vocabulary.eosIds.includes(token)) {
      return ends === null || this.#spansUntil(ends).rest(text) === 0 ? "" : null;
    }
    for (const byte of this.#compiled.bytes[token]) {
      const before = ends;
      state = this.#states.follow(state, [byte]);
      ends = marks[state] ?? null;
      if (before !== null && ends === null && this.#spansUntil(before).rest(text) !== 0) return null;
      text = before === null || ends === null ? "" : text + String.fromCharCode(byte);
    }
    const rest = ends === null ? 0 : this.#spansUntil(ends).rest(text);
    return rest === null || rest + this.#states.distance[state] >= this.#left ? null : text;
  }

  /** @param {string} marks */
  #spansUntil(marks) {
    let spans = this.#spans.get(marks);
    if (!spans) this.#spans.set(marks, (spans = new Spans(this.#texts, spelling(marks))));
    return spans;
  }

  /** @param {number} token */
  consume(token) {
    const run = token === this.forced ? this.#run.slice(1) : [];
    const isEnd = this.#compiled.vocabulary.eosIds.includes(token);
    const bytes = this.#compiled.bytes[token];
    const dead = this.#state <= 0 || (!isEnd && !bytes.length);
    const after = isEnd ? (this.isComplete ? OVER : 0) : dead ? 0 : this.#states.follow(this.#state, bytes);
    if (!after) throw new InputError("the catalogue allows no answer that goes on from here: begin a new answer");
    const copied = this.#copied === null ? null : this.#copiedAfter(token);
    this.#history.push([this.#state, this.#run, this.#copied]);
    [this.#state, this.#run, this.#copied, this.#mask] = [after, run, copied, null];
  }

  /** @param {number} tokens */
  rewind(tokens) {
    if (!tokens) return;
    [this.#state, this.#run, this.#copied] = this.#history[this.#history.length - tokens];
    this.#history.length -= tokens;
    this.#mask = null;
  }

  /** Move to the end of these tokens of an answer. @param {readonly number[]} prompt @param {readonly number[]} answer */
  async begin(prompt, answer) {
    this.#texts = textsOf(prompt, (token) => this.#compiled.bytes[token]);
    for (const token of answer) {
      this.#last += 1;
      this.consume(token);
    }
  }
}
