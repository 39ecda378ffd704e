// The compact form: calls as the text that a model generates. The rules are in hamburger_edge/calls/compact_form.py.
import { InputError } from "../errors.js";
import { safeRepr } from "../support/values.js";
import { toolNamed } from "./catalogue.js";

/** @import { Parameter, Tool } from "./catalogue.js" */

/**
 * @typedef {object} Call
 * @property {string} name  of the tool
 * @property {Record<string, unknown>} arguments
 * @property {number | null} certainty  of the whole answer; null: not measured for this model
 */

export const NO_CALL = "-";
export const ESCAPES = new Map([["\\", "\\"], [";", ";"], ["\n", "n"], ["\r", "r"], ["\t", "t"]]);
export const LIST_ESCAPES = new Map([...ESCAPES, [",", ","], ["[", "["]]);
const UNESCAPED = new Map([...LIST_ESCAPES].map(([character, letter]) => [letter, character]));

/** @param {string} text @param {readonly Tool[]} tools @param {number | null} certainty @returns {Call[]} */
export function parseCalls(text, tools, certainty) {
  return text === NO_CALL ? [] : text.split("\n").map((line) => parsed(line, tools, certainty));
}

/** Return the text of a choice, escaped. @param {string} text @param {boolean} isInList */
export function escaped(text, isInList) {
  const letters = isInList ? LIST_ESCAPES : ESCAPES;
  const inner = [...text].map((one) => (letters.has(one) && one !== "[" ? `\\${letters.get(one)}` : one)).join("");
  return isInList && inner.startsWith("[") ? `\\${inner}` : inner;
}

/** @param {string} line @param {readonly Tool[]} tools @param {number | null} certainty @returns {Call} */
function parsed(line, tools, certainty) {
  const space = line.indexOf(" ");
  const tool = toolNamed(tools, space < 0 ? line : line.slice(0, space), "the answer");
  const texts = space < 0 ? [] : split(line.slice(space), ";");
  /** @type {Map<string, unknown>} */
  const values = new Map();
  let next = 0;
  for (const text of texts) {
    const marks = tool.inText.map((parameter) => (parameter.isPositional ? " " : ` ${parameter.name} `));
    while (next < marks.length && !text.startsWith(marks[next])) next += 1;
    if (next === marks.length) throw new InputError(`the answer ${safeRepr(line)} has an unknown argument, or one out of order`);
    const parameter = tool.inText[next];
    values.set(parameter.name, valueOf(text.slice(marks[next].length), parameter));
    next += 1;
  }
  const entries = tool.parameters.flatMap(({ name, isRequired }) => {
    if (values.has(name)) return [[name, values.get(name)]];
    return isRequired ? [[name, null]] : [];
  });
  return { name: tool.name, arguments: Object.fromEntries(entries), certainty };
}

/** @param {string} text @param {Parameter} parameter */
function valueOf(text, parameter) {
  if (!parameter.isList) return scalarOf(text, parameter);
  if (text === "[]" && !parameter.shortest) return [];
  return split(text, ",").map((item, index) => scalarOf(index ? item.slice(1) : item, parameter));
}

/** @param {string} text @param {Parameter} parameter */
function scalarOf(text, { kind, choices }) {
  const plain = text.replace(/\\(.)/gs, (_, letter) => UNESCAPED.get(letter) ?? letter);
  if (kind === "string") return plain;
  if (kind === "choice") return choices.get(plain);
  return Number(plain) || 0; // never -0
}

/** Split at separators that no backslash escapes. @param {string} text @param {string} separator */
function split(text, separator) {
  const parts = [""];
  for (const piece of text.match(/\\.|[^\\]|\\$/gs) ?? []) {
    if (piece === separator) parts.push("");
    else parts[parts.length - 1] += piece;
  }
  return parts;
}
