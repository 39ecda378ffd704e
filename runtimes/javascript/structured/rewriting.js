// A JSON schema as it is compiled: formats as patterns, integers bounded, as in hamburger_edge/structured/rewriting.py, where
// the reasons are.
import { PATTERNS } from "./formats.js";

export const LARGEST_INTEGER = 9e18;

const LIMITS = /** @type {const} */ ({ minimum: -LARGEST_INTEGER, maximum: LARGEST_INTEGER });
const ANNOTATIONS = ["$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"];
const NAMED = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]; // schemas by name
const VALUES = ["const", "enum", "default", "examples"]; // no schemas, but values

/** @typedef {Record<string, any>} Schema */

/**
 * The schema as it is compiled. Plain integers become references to one definition, because each range takes
 * milliseconds to compile.
 * @param {Schema} schema @returns {Schema}
 */
export function rewritten(schema) {
  let name = "integer";
  while (Object.hasOwn(schema.$defs ?? {}, name)) name += "_";
  const reference = { $ref: `#/$defs/${name}` };
  const changed = nested(schema, reference);
  if (!JSON.stringify(changed).includes(reference.$ref)) return changed;
  return { ...changed, $defs: { ...changed.$defs, [name]: { type: "integer", ...LIMITS } } };
}

/** @param {any} part @param {Schema} reference  of a plain integer @returns {any} */
function nested(part, reference) {
  if (Array.isArray(part)) return part.map((one) => nested(one, reference));
  if (typeof part !== "object" || part === null) return part;
  const changed = mapped(part, (inner, keyword) => {
    if (VALUES.includes(keyword)) return inner;
    const isNamed = NAMED.includes(keyword) && typeof inner === "object" && inner !== null && !Array.isArray(inner);
    return isNamed ? mapped(inner, (one) => nested(one, reference)) : nested(inner, reference);
  });
  return bounded(patterned(changed), reference);
}

/** @param {Schema} object @param {(value: any, key: string) => any} change @returns {Schema} */
function mapped(object, change) {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value, key)]));
}

/** With the pattern of a date or time in the place of its format, and of a pattern beside it, which xgrammar ignores. @param {Schema} schema */
function patterned(schema) {
  const { format, ...rest } = schema;
  return typeof format === "string" && Object.hasOwn(PATTERNS, format) ? { ...rest, pattern: PATTERNS[format] } : schema;
}

/** With the limits that its integers lack. @param {Schema} schema @param {Schema} reference @returns {Schema} */
function bounded(schema, reference) {
  const { type, ...rest } = schema;
  const types = [type].flat();
  if (!types.includes("integer") || types.includes("number") || "const" in schema || "enum" in schema) return schema;
  if (types.length === 1 && Object.keys(rest).every((key) => ANNOTATIONS.includes(key))) return { ...rest, ...reference };
  const lacking = Object.entries(LIMITS).filter(([name]) => !(name in schema || `exclusive${name[0].toUpperCase()}${name.slice(1)}` in schema));
  return { ...schema, ...Object.fromEntries(lacking) };
}
