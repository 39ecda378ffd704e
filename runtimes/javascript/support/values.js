// Checks of callers' values, with one form of error messages.
import { InputError, oneLine } from "../errors.js";

/** Show a value in an error. @param {unknown} value */
export function safeRepr(value) {
  let text;
  try {
    text = typeof value === "bigint" ? `${value}` : (JSON.stringify(value) ?? String(value));
  } catch {
    text = `one of type ${typeof value}`;
  }
  return oneLine(typeof value === "number" ? String(value) : text, 80);
}

/**
 * `value` as a number in [low, high], or in (low, high] when `above`.
 * @param {string} name @param {unknown} value @param {number} low @param {number} high
 */
export function numberIn(name, value, low, high, above = false) {
  if (typeof value !== "number" || !(above ? low < value : low <= value) || !(value <= high)) {
    throw new InputError(`${name} must be ${above ? "above" : "from"} ${low} to ${high}, got ${safeRepr(value)}`);
  }
  return value;
}

/**
 * `value` as a whole number in low..high.
 * @param {string} name @param {unknown} value @param {number} low @param {number} high
 */
export function wholeIn(name, value, low, high) {
  if (typeof value !== "number" || !Number.isInteger(value) || value < low || value > high) {
    const limit = high < 2 ** 31 ? `at most ${high}` : "not so large";
    throw new InputError(`${name} must be a whole number, ${low} or more and ${limit}, got ${safeRepr(value)}`);
  }
  return value;
}

/**
 * Check that options are an object and, if `known` is given, that it names all of them.
 * @template {object} T
 * @param {T} options @param {readonly string[]} [known]
 * @returns {T}
 */
export function checkOptions(options, known) {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new InputError(`options must be an object, as { name: value }, got ${safeRepr(options)}`);
  }
  const unknown = known && Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new InputError(`unknown option ${safeRepr(unknown)} (known: ${known?.join(", ")})`);
  return options;
}

/** @param {string} name @param {unknown} value */
export function flag(name, value) {
  if (typeof value !== "boolean") throw new InputError(`${name} must be true or false, got ${safeRepr(value)}`);
  return value;
}

/** Text that has a UTF-8 form. @param {unknown} text @param {string} [name]  where it was given */
export function checkText(text, name) {
  const start = name === undefined ? "" : `${name}: `;
  if (typeof text !== "string") throw new InputError(`${start}expected text, got ${safeRepr(text)}`);
  const place = text.search(/\p{Surrogate}/u);
  if (place >= 0) throw new InputError(`${start}the text has half a character at ${place}: cut it between characters`);
  return text;
}
