// Keywords of a JSON schema that xgrammar ignores: it would silently allow answers that the schema forbids.
//
// xgrammar uses the first keyword of a schema in the order of `KINDS`, and only the keywords of that line with it.
import { InputError } from "../errors.js";
import { safeRepr } from "../support/values.js";

/** @typedef {Record<string, any>} Schema */

const DEEPEST = 64; // schemas inside each other
const PLAIN = [ // without effect on the answer, or read through a $ref
  "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description", "examples", "readOnly",
  "title", "writeOnly",
];
const OBJECT = ["additionalProperties", "maxProperties", "minProperties", "unevaluatedProperties"];
const ARRAY = ["items", "maxItems", "minItems", "prefixItems", "unevaluatedItems"];
const RANGE = ["maximum", "minimum"];
const FORMATS = [
  "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer", "relative-json-pointer", "time",
  "uri", "uri-reference", "uri-template", "uuid",
];
/** @type {[string, (schema: Schema) => string[]][]} keyword -> ignored keywords beside it */
const KINDS = [
  ["$ref", () => []],
  ["const", (schema) => (areOf(schema.type, [schema.const]) ? ["type"] : [])],
  ["enum", (schema) => (areOf(schema.type, schema.enum) ? ["type"] : [])],
  ["anyOf", () => []],
  ["oneOf", () => []],
  ["allOf", () => []],
  ["type", (schema) => [schema.type].flat().flatMap((type) => ofType(type, schema))],
  ...["properties", "additionalProperties", "unevaluatedProperties"].map(object),
  ...["items", "prefixItems", "unevaluatedItems"].map(array),
];

/** Refuse ignored keywords, unless `isLenient`. @param {string} text @param {boolean} isLenient */
export function checkSchema(text, isLenient) {
  /** @type {[place: string, schema: unknown][]} */
  let level = [["#", JSON.parse(text)]];
  for (let depth = 0; level.length; depth++) {
    if (depth > DEEPEST) throw new InputError(`jsonSchema: more than ${DEEPEST} levels inside each other: make it flatter`);
    const schemas = level.filter(([, found]) => typeof found === "object" && found && !Array.isArray(found));
    for (const [place, found] of schemas) {
      const empty = ["enum", "anyOf"].find((name) => /** @type {Schema} */ (found)[name]?.length === 0);
      if (empty) throw new InputError(`jsonSchema: ${empty} (at ${place}) is empty, so no answer follows it: give it a value`);
    }
    for (const [place, found] of isLenient ? [] : schemas) {
      const what = unsupported(/** @type {Schema} */ (found));
      if (what) throw new InputError(`jsonSchema: ${what} (at ${place}) is not supported: leave it out, or set strict to false`);
    }
    level = schemas.flatMap(([place, found]) => inside(/** @type {Schema} */ (found), place));
  }
}

/** @param {Schema} schema */
function unsupported(schema) {
  const [keyword, others] = KINDS.find(([name]) => name in schema) ?? ["", () => []];
  const known = [keyword, ...PLAIN, ...others(schema)];
  const unknown = Object.keys(schema).find((name) => !known.includes(name));
  if (unknown === "format") return `format ${safeRepr(schema.format)}`;
  if (unknown !== undefined) return safeRepr(unknown);
  if (keyword === "oneOf") return "oneOf, whose alternatives may overlap,";
  if (keyword === "allOf" && schema.allOf.length !== 1) return "allOf of several schemas";
  if (keyword === "$ref" && !String(schema.$ref).startsWith("#")) return "$ref to another document";
  return null;
}

/** @param {unknown} type @param {Schema} schema @returns {string[]} */
function ofType(type, schema) {
  if (type === "object") return objectWords(schema);
  if (type === "array") return ARRAY;
  if (type === "integer") return [...RANGE, "exclusiveMaximum", "exclusiveMinimum"];
  if (type === "number") return RANGE;
  if (type !== "string") return [];
  if ("format" in schema) return FORMATS.includes(schema.format) ? ["format"] : [];
  return "pattern" in schema ? ["pattern"] : ["maxLength", "minLength"];
}

/** Pattern properties must be alone; required properties must be described. @param {Schema} schema */
function objectWords({ patternProperties, propertyNames, properties, required }) {
  if (patternProperties) return [...OBJECT, "patternProperties"];
  if (propertyNames) return [...OBJECT, "propertyNames"];
  const isDescribed = required?.every?.((/** @type {string} */ name) => Object.hasOwn(properties ?? {}, name));
  return isDescribed ? [...OBJECT, "properties", "required"] : [...OBJECT, "properties"];
}

/** @param {string} name @returns {[string, (schema: Schema) => string[]]} */
function object(name) {
  return [name, objectWords];
}

/** @param {string} name @returns {[string, (schema: Schema) => string[]]} */
function array(name) {
  return [name, () => ARRAY];
}

/** Return the schemas directly inside one. @param {Schema} schema @param {string} place @returns {[string, unknown][]} */
function inside(schema, place) {
  const single = ["additionalProperties", "items", "propertyNames", "unevaluatedItems", "unevaluatedProperties"];
  const several = ["$defs", "allOf", "anyOf", "definitions", "oneOf", "patternProperties", "prefixItems", "properties"];
  return [
    ...single.map((name) => /** @type {[string, unknown]} */ ([`${place}/${name}`, schema[name]])),
    ...several.flatMap((name) =>
      Object.entries(schema[name] ?? {}).map(([key, found]) =>
        /** @type {[string, unknown]} */ ([`${place}/${name}/${key}`, found]),
      ),
    ),
  ];
}

/** Whether a `type` adds nothing to given values. @param {unknown} type @param {unknown} values */
function areOf(type, values) {
  const types = [type].flat();
  return Array.isArray(values) && values.every((value) => types.some((name) => isOf(value, name)));
}

/** @param {unknown} value @param {unknown} type */
function isOf(value, type) {
  if (type === "integer") return Number.isInteger(value);
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return typeof value === "object" && value !== null && !Array.isArray(value);
  return typeof value === type;
}
