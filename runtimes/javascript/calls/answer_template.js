// Templates that turn a call and its tool's result into an answer, without another model call. The rules, and the check
// of a template, are in hamburger_edge/calls/answer_template.py.
import { InputError } from "../errors.js";
import { safeRepr } from "../support/values.js";

/** @typedef {{pieces: ({text: string} | {name: string})[], isOptional: boolean}} Section  left out if it is optional and a name has no value */

const PIECES = /(\{\{|\}\}|\[\[|\]\])|\{([^{}]*)\}|([[\]{}])|([^[\]{}]+)/g;

/** @param {string} template @returns {Section[]} */
export function readAnswerTemplate(template) {
  /** @type {Section[]} */
  const sections = [{ pieces: [], isOptional: false }];
  for (const [, doubled, name, mark, literal] of template.matchAll(PIECES)) {
    const { pieces, isOptional } = sections[sections.length - 1];
    if (mark) sections.push({ pieces: [], isOptional: !isOptional });
    else pieces.push(name ? { name } : { text: doubled ? doubled[0] : literal });
  }
  return sections;
}

/**
 * Return the text of a call's result. If the template needs a field and the result is no object, the result itself is
 * the text.
 * @param {readonly Section[]} sections @param {string} tool @param {Record<string, unknown>} values  the call's arguments
 * @param {unknown} result
 */
export function filled(sections, tool, values, result) {
  const fields = decoded(result);
  const texts = new Map([...textsOf(values), ...textsOf({ result }), ...textsOf(fields ?? {})]);
  let text = "";
  for (const { pieces, isOptional } of sections) {
    const missing = pieces.find((piece) => "name" in piece && !texts.has(piece.name));
    if (!missing) text += pieces.map((piece) => ("name" in piece ? texts.get(piece.name) : piece.text)).join("");
    else if (isOptional) continue;
    else if (!fields && result !== null && result !== undefined) return valueText(result);
    else {
      const name = "name" in missing ? missing.name : "";
      throw new InputError(
        `${tool}: its answer template needs {${name}}, and the result ${safeRepr(result)} has no such field: return it, ` +
          "or write the part in brackets",
      );
    }
  }
  return text;
}

/** Return texts as they are, a list of them with commas, other values as JSON. @param {unknown} value @returns {string} */
export function valueText(value) {
  if (typeof value === "string") return value;
  const isFlat = Array.isArray(value) && !value.some((item) => typeof item === "object" && item !== null);
  if (isFlat) return value.map(valueText).join(", ");
  const text = jsonOf(value);
  if (text === undefined || (typeof value === "number" && !Number.isFinite(value))) {
    throw new InputError(`a tool's result must be JSON, got ${safeRepr(value)}`);
  }
  return text;
}

/** @param {unknown} value */
function jsonOf(value) {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** @param {Record<string, unknown>} values @returns {[string, string][]} */
function textsOf(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return given.map(([name, value]) => [name, valueText(value)]);
}

/** The fields of a result that is an object, or its JSON; null if it has none. @param {unknown} result @returns {Record<string, unknown> | null} */
function decoded(result) {
  let value = result;
  if (typeof result === "string" && result.trimStart().startsWith("{")) {
    try {
      value = JSON.parse(result);
    } catch {
      return null;
    }
  }
  return typeof value === "object" && value !== null && !Array.isArray(value) ? /** @type {Record<string, unknown>} */ (value) : null;
}
