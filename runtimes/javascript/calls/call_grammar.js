// Decoding along a model's tools, as in hamburger_edge/calls/call_grammar.py: a token is forced if no other text is
// allowed. Near the token limit only tokens are allowed from which the answer can still be completed.
import { InputError } from "../errors.js";
import { Vocabulary } from "../structured/vocabulary.js";
import { callStates } from "./call_automaton.js";
import { limited } from "./catalogue.js";

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

  /** @param {readonly Tool[]} tools @param {Tokenizer} tokenizer @param {number} vocabSize @param {readonly number[]} eosIds */
  constructor(tools, tokenizer, vocabSize, eosIds) {
    this.tools = tools;
    this.tokenizer = tokenizer;
    this.vocabSize = vocabSize;
    this.eosIds = eosIds;
  }

  /** @param {CallLimits} limits @param {number} maxTokens */
  start(limits, maxTokens) {
    const key = JSON.stringify(limits);
    this.#vocabulary ??= new Vocabulary(this.tokenizer, this.vocabSize, this.eosIds);
    if (this.#newest?.key !== key) {
      const states = callStates(limited(this.tools, limits), limits);
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
export class CallGrammar {
  /** @type {number | null} */
  maxTokens = null;
  /** @type {string | null} */
  fallback = null;
  masks = true;
  #compiled;
  #states;
  #state;
  #last;
  /** @type {readonly number[]} forced tokens from here on */
  #run = [];
  /** @type {[state: number, run: readonly number[]][]} before each token consumed */
  #history = [];
  /** @type {Uint8Array | null} */
  #mask = null;

  /** @param {CompiledCalls} compiled @param {number} maxTokens */
  constructor(compiled, maxTokens) {
    this.#compiled = compiled;
    this.#states = compiled.states;
    this.#state = compiled.states.start;
    this.#last = maxTokens;
  }

  async look() {}

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

  /** @param {number} token */
  allows(token) {
    if (this.#state === OVER) return false;
    if (!this.#mask) {
      const left = this.#last - this.#history.length;
      const isFree = left > this.#states.longestDistance + 1;
      this.#mask = isFree ? this.#compiled.allowed(this.#state) : this.#compiled.allowedWithin(this.#state, left);
    }
    return this.#mask[token] === 1;
  }

  /** @param {number} token */
  consume(token) {
    const run = token === this.forced ? this.#run.slice(1) : [];
    const isEnd = this.#compiled.vocabulary.eosIds.includes(token);
    const bytes = this.#compiled.bytes[token];
    const dead = this.#state <= 0 || (!isEnd && !bytes.length);
    const after = isEnd ? (this.isComplete ? OVER : 0) : dead ? 0 : this.#states.follow(this.#state, bytes);
    if (!after) throw new InputError("the catalogue allows no answer that goes on from here: begin a new answer");
    this.#history.push([this.#state, this.#run]);
    [this.#state, this.#run, this.#mask] = [after, run, null];
  }

  /** @param {number} tokens */
  rewind(tokens) {
    if (!tokens) return;
    [this.#state, this.#run] = this.#history[this.#history.length - tokens];
    this.#history.length -= tokens;
    this.#mask = null;
  }

  /** Move to the end of these tokens of an answer. @param {readonly number[]} _prompt @param {readonly number[]} answer */
  async begin(_prompt, answer) {
    for (const token of answer) {
      this.#last += 1;
      this.consume(token);
    }
  }

  close() {}
}
