// The compact form: calls as the text that a model generates. The rules are in hamburger_edge/calls/compact_form.py.
import { InputError } from "../errors.js";
import { safeRepr } from "../support/values.js";
import { inTextOrder, toolNamed } from "./catalogue.js";

/** @import { Parameter, Tool } from "./catalogue.js" */

/**
 * @typedef {object} Call
 * @property {string} name  of the tool
 * @property {Record<string, unknown>} arguments
 * @property {number | null} certainty  of the whole answer; null: not measured for this model
 */

export const NO_CALL = "-";
export const CONTROLS = new Map([["\n", "n"], ["\r", "r"], ["\t", "t"]]); // character -> letter after a backslash
const LETTERS = new Map([...CONTROLS].map(([character, letter]) => [letter, character]));

/** @param {string} text @param {readonly Tool[]} tools @param {number | null} certainty @returns {Call[]} */
export function parseCalls(text, tools, certainty) {
  return text === NO_CALL ? [] : text.split("\n").map((line) => parsed(line, tools, certainty));
}

/**
 * Add the certainty of the whole answer, which an array of no calls has, too.
 * @param {Call[]} calls @param {number | null} certainty @param {boolean} unsure
 */
export function withCertainty(calls, certainty, unsure) {
  return /** @type {Call[] & {readonly certainty: number | null, readonly unsure: boolean}} */ (Object.defineProperties(calls, { certainty: { value: certainty }, unsure: { value: unsure } }));
}

/** Return a text with a backslash before the marks that may end it. @param {string} text @param {string} ends */
export function escaped(text, ends) {
  const special = `\\${ends}`;
  const inner = [...text].map((one) => (CONTROLS.has(one) || special.includes(one) ? `\\${CONTROLS.get(one) ?? one}` : one)).join("");
  return ends.includes(",") && inner.startsWith("[") ? `\\${inner}` : inner;
}

/** Return the bytes that texts spell otherwise, where these marks may end one. @param {string} ends */
export function spelling(ends) {
  return new Map([...CONTROLS.keys(), "\\", ...ends].map((mark) => [mark.charCodeAt(0), escaped(mark, ends)]));
}

/** @param {string} line @param {readonly Tool[]} tools @param {number | null} certainty @returns {Call} */
function parsed(line, tools, certainty) {
  const space = line.indexOf(" ");
  const { name, parameters } = toolNamed(tools, space < 0 ? line : line.slice(0, space), "the answer");
  const values = space < 0 ? new Map() : new TextReader(line, space).arguments(parameters, ";");
  return { name, arguments: inOrder(values, parameters), certainty };
}

/**
 * Return the values in the schema's order; a missing required one is null.
 * @param {Map<string, unknown>} values @param {readonly Parameter[]} parameters @returns {Record<string, unknown>}
 */
function inOrder(values, parameters) {
  return Object.fromEntries(parameters.flatMap(({ name, isRequired }) => {
    if (values.has(name)) return [[name, values.get(name)]];
    return isRequired ? [[name, null]] : [];
  }));
}

/** Reads the values of a line from left to right. */
class TextReader {
  #line;
  #position;

  /** @param {string} line @param {number} position */
  constructor(line, position) {
    this.#line = line;
    this.#position = position;
  }

  /** Read arguments up to the end of their call or object. @param {readonly Parameter[]} parameters @param {string} ends  marks that may follow a value */
  arguments(parameters, ends) {
    /** @type {Map<string, unknown>} */
    const values = new Map();
    const order = inTextOrder(parameters);
    do {
      while (order.length && !this.#line.startsWith(order[0].mark, this.#position)) order.shift();
      const parameter = order.shift();
      if (!parameter) throw this.#refusal("has an unknown argument, or one out of order");
      this.#position += parameter.mark.length;
      values.set(parameter.name, this.#value(parameter, ends));
    } while (this.#took(";"));
    return values;
  }

  /** @param {Parameter} parameter @param {string} ends */
  #value(parameter, ends) {
    if (!parameter.isList) return this.#item(parameter, ends);
    if (!parameter.shortest && this.#took("[]")) return [];
    const items = [this.#item(parameter, `${ends},`)];
    while (this.#took(",")) {
      this.#took(" ");
      items.push(this.#item(parameter, `${ends},`));
    }
    return items;
  }

  /** @param {Parameter} parameter @param {string} ends @returns {unknown} */
  #item({ kind, choices, properties }, ends) {
    if (kind === "object") {
      if (!this.#took("(")) throw this.#refusal("has no ( before an object");
      if (this.#took(")")) return inOrder(new Map(), properties);
      const values = this.arguments(properties, ";)");
      if (!this.#took(")")) throw this.#refusal("has no ) after an object");
      return inOrder(values, properties);
    }
    const text = this.#text(ends);
    if (kind === "string") return text;
    if (kind === "choice") return choices.get(text);
    return Number(text) || 0; // never -0
  }

  /** Read up to one of the ends that no backslash escapes. @param {string} ends */
  #text(ends) {
    const pieces = new RegExp(`(?:\\\\.|[^\\\\${ends}]|\\\\$)*`, "sy");
    pieces.lastIndex = this.#position;
    const [text] = /** @type {RegExpExecArray} */ (pieces.exec(this.#line));
    this.#position += text.length;
    return text.replace(/\\(.)/gs, (_, letter) => LETTERS.get(letter) ?? letter);
  }

  /** Step over a text if it is the next one. @param {string} text */
  #took(text) {
    const isNext = this.#line.startsWith(text, this.#position);
    if (isNext) this.#position += text.length;
    return isNext;
  }

  /** @param {string} fault */
  #refusal(fault) {
    return new InputError(`the answer ${safeRepr(this.#line)} ${fault}`);
  }
}
