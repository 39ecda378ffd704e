// The field and the string that a JSON text has come to, byte by byte.
//
//     {"slots": {"album": "Jer       field "slots.album", string "Jer"
//
// A field is the path of keys to a value, joined by dots; the items of a list share a path with "[]" behind it.
// Keys and strings stay as the text spells them, with its escapes.

/** @typedef {"value" | "key" | "name" | "colon" | "string" | "other" | "end" | "lost"} Phase */

/**
 * @typedef {object} Position
 * @property {Phase} phase  `value`: a value may begin; `key`: a key may begin, or the object may end; `name`: inside a
 *   key; `colon`: behind a key; `string`: inside a string that is a value; `other`: inside a number or a word; `end`:
 *   behind a value; `lost`: the text is not JSON
 * @property {string} field  of the value here, or of the newest key
 * @property {string} text  bytes of the key or string so far, a character each
 * @property {boolean} escapes  whether the next byte belongs to an escape
 * @property {readonly {opening: string, field: string}[]} around  the containers
 */

/** @type {Position} */
export const START = { phase: "value", field: "", text: "", escapes: false, around: [] };
/** @type {Position} */
export const LOST = { ...START, phase: "lost" };

const CLOSES = new Map([["}", "{"], ["]", "["]]);

/** Return the position after one more byte, which is given as a character. @param {Position} position @param {string} byte @returns {Position} */
export function after(position, byte) {
  const { phase } = position;
  if (phase === "name" || phase === "string") return inString(position, byte);
  if (phase === "lost" || " \t\n\r".includes(byte)) return phase === "other" ? ended(position) : position;
  if (phase === "key" && byte === '"') return { ...position, phase: "name", text: "" };
  if (phase === "colon") return byte === ":" ? { ...position, phase: "value" } : LOST;
  if (phase === "value" && byte === '"') return { ...position, phase: "string", text: "" };
  if (phase === "value" && (byte === "{" || byte === "[")) return opened(position, byte);
  if (CLOSES.has(byte)) return closed(position, byte);
  if (byte === "," && (phase === "other" || phase === "end")) return next(position);
  return phase === "value" || phase === "other" ? { ...position, phase: "other" } : LOST;
}

/** @param {Position} position @param {string} byte @returns {Position} */
function inString(position, byte) {
  if (byte < " ") return LOST;
  if (position.escapes || byte !== '"') {
    return { ...position, text: position.text + byte, escapes: byte === "\\" && !position.escapes };
  }
  if (position.phase === "string") return ended(position);
  const outer = position.around[position.around.length - 1].field;
  const key = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(position.text, (letter) => letter.charCodeAt(0)));
  return { ...position, phase: "colon", field: outer ? `${outer}.${key}` : key };
}

/** @param {Position} position @returns {Position} */
function ended(position) {
  return { ...position, phase: "end", text: "" };
}

/** @param {Position} position @param {"{" | "["} opening @returns {Position} */
function opened({ field, around }, opening) {
  const isList = opening === "[";
  return { ...START, phase: isList ? "value" : "key", field: isList ? `${field}[]` : field, around: [...around, { opening, field }] };
}

/** Leave the container; a comma before its end is no error. @param {Position} position @param {string} byte @returns {Position} */
function closed({ around }, byte) {
  const inner = around[around.length - 1];
  if (inner?.opening !== CLOSES.get(byte)) return LOST;
  return { ...START, phase: "end", field: inner.field, around: around.slice(0, -1) };
}

/** @param {Position} position @returns {Position} */
function next(position) {
  const inner = position.around[position.around.length - 1];
  if (!inner) return LOST;
  if (inner.opening === "[") return { ...position, phase: "value", field: `${inner.field}[]` };
  return { ...position, phase: "key" };
}
