// The requested structure of an answer.
import { checkLimits } from "../calls/catalogue.js";
import { InputError, reason } from "../errors.js";
import { flag, safeRepr } from "../support/values.js";

/** @import { Options } from "../loop/settings.js" */

/** @typedef {{kind: "jsonSchema" | "regex" | "grammar" | "calls", text: string, isLenient: boolean, allowsText: boolean}} Structure */

const LARGEST = 1 << 16; // characters of a structure
const WRAPPER = ["name", "description", "schema", "strict"]; // of OpenAI's object around a schema
const KINDS = /** @type {const} */ (["jsonSchema", "regex", "grammar", "calls"]);

/** Return the options of a structure. @param {Options} options */
export function structural({ jsonSchema = null, regex = null, grammar = null, allowText = false }) {
  return { jsonSchema, regex, grammar, allowText };
}

/** Return the structure in an answer's options; null if there is none. @param {Options} options @returns {Structure | null} */
export function structureOf(options) {
  const allowsText = flag("allowText", options.allowText ?? false);
  const named = KINDS.filter((kind) => options[kind] !== undefined && options[kind] !== null);
  if (!named.length) return null;
  if (named.length > 1) throw new InputError(`give one of ${named.join(" and ")}: an answer has one structure`);
  const [kind] = named;
  if (allowsText && kind !== "jsonSchema") throw new InputError("allowText stands beside a jsonSchema: leave it out");
  if (kind === "calls") return { kind, text: JSON.stringify(checkLimits(options.calls)), isLenient: false, allowsText };
  const { text, isLenient } =
    kind === "jsonSchema" ? schemaOf(options.jsonSchema) : { text: options[kind], isLenient: false };
  if (typeof text !== "string" || !text.trim()) {
    throw new InputError(`${kind} must be a text that says something, got ${safeRepr(text)}`);
  }
  if (text.length > LARGEST) {
    throw new InputError(`${kind} has ${text.length} characters, at most ${LARGEST} are taken: make it simpler`);
  }
  return { kind, text, isLenient, allowsText };
}

/** Return a schema as JSON, and whether `strict` is false: see `Options`. @param {unknown} given */
function schemaOf(given) {
  try {
    let [schema, isStrict] = [parsed(given), true];
    const names = typeof schema === "object" && schema !== null ? Object.keys(schema) : [];
    if (names.includes("schema") && names.every((name) => WRAPPER.includes(name))) {
      isStrict = flag("jsonSchema.strict", schema.strict ?? true);
      schema = parsed(schema.schema);
    }
    if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
      throw new InputError(`jsonSchema must be an object, got ${safeRepr(schema)}`);
    }
    return { text: JSON.stringify(schema), isLenient: !isStrict };
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError(`jsonSchema is not plain JSON (${reason(error)}): correct it`, { cause: error });
  }
}

/** @param {unknown} schema @returns {any} */
function parsed(schema) {
  return typeof schema === "string" ? JSON.parse(schema) : schema;
}
