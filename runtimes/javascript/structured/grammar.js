// Structured answers: a structure compiled for a tokenizer, and an answer's position in it.
//
//     Structure --Grammars.start--> Grammar:  forced tokens, masks for base and micro steps, consume, rewind
//
// xgrammar parses. It returns the forced text, which this module cuts into tokens like the tokenizer.
import { InputError } from "../errors.js";
import { Unconstrained } from "./constraint.js";
import { rewritten } from "./rewriting.js";
import { checkSchema } from "./schema.js";
import { Vocabulary } from "./vocabulary.js";
import { failure, xgrammar } from "./xgrammar.js";

/** @import { CompiledGrammar, GrammarCompiler, StructuralTagFormat } from "@mlc-ai/web-xgrammar" */
/** @import { Tokenizer } from "../chat/tokenizer.js" */
/** @import { Structure } from "./structure.js" */

/**
 * @typedef {object} Matcher  xgrammar's GrammarMatcher; apps without xgrammar have no types of it.
 * @property {(token: number) => boolean} acceptToken
 * @property {(tokens: number) => void} rollBack
 * @property {() => boolean} isTerminated
 * @property {() => string} findJumpForwardString
 * @property {() => Promise<Int32Array>} getNextTokenBitmask
 * @property {() => void} dispose
 */

/**
 * @typedef {object} Place  What may follow at a position of an answer.
 * @property {readonly number[]} run  tokens forced one after the other
 * @property {number} index  which of them is next
 * @property {Int32Array | null} bits  [vocab / 32]; null if a token is forced, and after the end token
 * @property {boolean} isComplete  the answer may end here
 * @property {boolean} isEnded  the answer cannot continue
 */

// Like json.dumps: one line with a space after commas and colons.
const LAYOUT = /** @type {const} */ ([false, -1, [", ", ": "], true]);

const WORDS = "[^{\\[](.|\\n)*"; // text that does not begin like a JSON object or array

/** Compiles structures for one tokenizer and keeps the newest, which is usually requested again. */
export class Grammars {
  /** @type {{vocabulary: Vocabulary, compiler: GrammarCompiler} | null} made for the first structure */
  #prepared = null;
  /** @type {{key: string, compiled: CompiledGrammar} | null} */
  #newest = null;

  /** @param {Tokenizer} tokenizer @param {number} vocabSize @param {readonly number[]} eosIds */
  constructor(tokenizer, vocabSize, eosIds) {
    this.tokenizer = tokenizer;
    this.vocabSize = vocabSize;
    this.eosIds = eosIds;
  }

  /** Start at the beginning of an answer. @param {Structure} structure */
  async start(structure) {
    const library = await xgrammar();
    if (!this.eosIds.length) throw new InputError("this model has no end token, which a structure needs: leave it out");
    const { vocabulary, compiler } = (this.#prepared ??= await this.#prepare(library));
    const key = JSON.stringify(structure);
    if (this.#newest?.key !== key) {
      const compiled = await compile(library, compiler, structure);
      this.#newest?.compiled.dispose();
      this.#newest = { key, compiled };
    }
    const matcher = await library.GrammarMatcher.createGrammarMatcher(this.#newest.compiled);
    const isJson = structure.kind === "jsonSchema" && !structure.allowsText;
    return new Grammar(matcher, vocabulary, isJson ? vocabulary.printable : vocabulary.text);
  }

  /** @param {import("./xgrammar.js").Library} library */
  async #prepare(library) {
    const vocabulary = new Vocabulary(this.tokenizer, this.vocabSize, this.eosIds);
    const { TokenizerInfo, GrammarCompiler } = library;
    const info = await TokenizerInfo.createTokenizerInfo(
      vocabulary.pieces, "byte_level", false, this.vocabSize, [...this.eosIds],
    );
    return { vocabulary, compiler: await GrammarCompiler.createGrammarCompiler(info, false) };
  }
}

/** @param {import("./xgrammar.js").Library} library @param {GrammarCompiler} compiler @param {Structure} structure */
async function compile(library, compiler, { kind, text, isLenient, allowsText }) {
  if (kind === "jsonSchema") checkSchema(text, isLenient);
  const tagged = (/** @type {StructuralTagFormat} */ format) =>
    compiler.compileStructuralTag({ type: "structural_tag", format });
  try {
    if (kind === "jsonSchema") {
      const [anyWhitespace, indent, separators, isStrict] = LAYOUT;
      const schema = JSON.stringify(rewritten(JSON.parse(text)));
      if (!allowsText) return await compiler.compileJSONSchema(schema, anyWhitespace, indent, [...separators], isStrict);
      const json = await library.Grammar.fromJSONSchema(schema, anyWhitespace, indent, [...separators], isStrict);
      const grammar = json.toString();
      json.dispose();
      return await tagged({ type: "or", elements: [{ type: "regex", pattern: WORDS }, { type: "grammar", grammar }] });
    }
    if (kind === "grammar") return await compiler.compileGrammar(text);
    return await tagged({ type: "regex", pattern: text });
  } catch (error) {
    throw new InputError(`${kind}: ${failure()}: correct it, or make it simpler`, { cause: error });
  }
}

/** An answer's position in a structure. */
export class Grammar extends Unconstrained {
  masks = true;
  /** @type {Place[]} before each token consumed */
  #before = [];
  /** @type {number[]} tokens consumed */
  #said = [];
  /** @type {Place | null} the current one; null: not computed yet */
  #here = null;
  #matcher;
  #vocabulary;
  #usable;

  /** @param {Matcher} matcher @param {Vocabulary} vocabulary @param {Int32Array} usable  bits of tokens */
  constructor(matcher, vocabulary, usable) {
    super();
    this.#matcher = matcher;
    this.#vocabulary = vocabulary;
    this.#usable = usable;
  }

  /** Compute what may follow; call it after each consumed token, before the getters. */
  async look() {
    this.#here ??= await this.#find();
  }

  get #place() {
    if (!this.#here) throw new Error("look() first");
    return this.#here;
  }

  /** The only token that may follow, if there is exactly one. */
  get forced() {
    const { run, index } = this.#place;
    return run[index] ?? null;
  }

  /** The answer may end here. */
  get isComplete() {
    return this.#here?.isComplete ?? false;
  }

  get isEnded() {
    return this.#place.isEnded;
  }

  /** @param {number} token */
  keeps(token) {
    const { bits, run, index } = this.#place;
    return bits ? has(bits, token) : token === run[index];
  }

  /** @param {number} token */
  consume(token) {
    const place = this.#place;
    if (!this.#matcher.acceptToken(token)) {
      throw new InputError("the structure allows no answer that goes on from here: correct it");
    }
    this.#before.push(place);
    this.#said.push(token);
    const next = place.index + 1;
    // the rest of a run is never cut again, wherever an answer stops and continues
    this.#here = token === this.forced && next < place.run.length ? { ...place, index: next } : null;
  }

  /** @param {number} tokens */
  rewind(tokens) {
    if (!tokens) return;
    this.#matcher.rollBack(tokens);
    this.#here = this.#before[this.#before.length - tokens];
    this.#before.length -= tokens;
    this.#said.length -= tokens;
  }

  /** Move to the end of these tokens of an answer. @param {readonly number[]} _prompt @param {readonly number[]} answer */
  async begin(_prompt, answer) {
    for (const token of answer) {
      await this.look();
      this.consume(token);
    }
  }

  close() {
    this.#matcher.dispose();
  }

  /** @returns {Promise<Place>} */
  async #find() {
    const nothing = { run: [], index: 0, bits: null, isComplete: false, isEnded: false };
    if (this.#matcher.isTerminated()) return { ...nothing, isComplete: true, isEnded: true };
    const run = await this.#cut(this.#matcher.findJumpForwardString());
    if (run.length) return { ...nothing, run };
    const bits = await this.#bits();
    const { eosIds } = this.#vocabulary;
    const isComplete = eosIds.some((id) => has(bits, id));
    const ends = Int32Array.from(bits);
    for (const id of eosIds) ends[id >> 5] &= ~(1 << (id & 31));
    const isEnded = ends.every((word) => word === 0);
    if (isEnded && !isComplete) {
      throw new InputError("the structure allows no answer that goes on from here: correct it");
    }
    return { ...nothing, bits, isComplete, isEnded };
  }

  async #bits() {
    const bits = await this.#matcher.getNextTokenBitmask();
    const last = this.#said.at(-1);
    const following = last === undefined ? null : this.#vocabulary.following(last);
    return bits.map((word, i) => word & this.#usable[i] & (following?.[i] ?? -1));
  }

  /**
   * Return the tokens of a forced text, up to a place where a longer token could replace the rest: the following text
   * is not forced yet, and the tokenizer might join both.
   * @param {string} text
   */
  async #cut(text) {
    const tokens = this.#vocabulary.cut(text);
    let kept = 0;
    for (; kept < tokens.length; kept++) {
      const longer = this.#vocabulary.longerThan(tokens.slice(kept));
      if (longer.length) {
        const bits = await this.#bits();
        if (longer.some((token) => has(bits, token))) break;
      }
      if (!this.#matcher.acceptToken(tokens[kept])) break;
    }
    if (kept) this.#matcher.rollBack(kept);
    return tokens.slice(0, kept);
  }
}

/** @param {Int32Array} bits @param {number} token */
function has(bits, token) {
  return ((bits[token >> 5] >>> (token & 31)) & 1) === 1;
}
