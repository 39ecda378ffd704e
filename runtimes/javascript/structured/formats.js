// Dates and times in JSON schemas, as regular expressions: Python's, in hamburger_edge/loop/formats.py, where the
// reasons are.

const YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
const FOURTH = "(?:0[48]|[2468][048]|[13579][26])"; // two digits of a multiple of four, but not 00
const DATE =
  `(?:${YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
  `|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}${FOURTH}|${FOURTH}00)-02-29)`;
const [HOUR, MINUTE] = ["(?:[01][0-9]|2[0-3])", "[0-5][0-9]"];
const TIME = `${HOUR}:${MINUTE}:${MINUTE}(?:[.][0-9]{1,9})?(?:Z|[+-]${HOUR}:${MINUTE})`;

/** @type {Record<string, string>} */
export const PATTERNS = { date: `^${DATE}$`, time: `^${TIME}$`, "date-time": `^${DATE}T${TIME}$` };

const NAMED = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]; // schemas by name
const VALUES = ["const", "enum", "default", "examples"]; // no schemas, but values

/**
 * The schema with the pattern of each date and time format in the place of the format (and of a pattern beside it,
 * which xgrammar leaves out of account).
 * @param {any} schema @returns {any}
 */
export function withPatterns(schema) {
  if (Array.isArray(schema)) return schema.map(withPatterns);
  if (typeof schema !== "object" || schema === null) return schema;
  const changed = Object.fromEntries(Object.entries(schema).map(([key, part]) => [key, changedPart(key, part)]));
  const { format, ...rest } = changed;
  if (typeof format !== "string" || !Object.hasOwn(PATTERNS, format)) return changed;
  return { ...rest, pattern: PATTERNS[format] };
}

/** @param {string} key @param {any} part */
function changedPart(key, part) {
  if (VALUES.includes(key)) return part;
  if (!NAMED.includes(key) || typeof part !== "object" || part === null || Array.isArray(part)) return withPatterns(part);
  return Object.fromEntries(Object.entries(part).map(([name, schema]) => [name, withPatterns(schema)]));
}
