// The tools of a model, from its manifest: names and parameters of the functions that its answers call. The Python
// package checked the schemas (hamburger_edge/calls/parameters.py) and the answer templates.
import { InputError } from "../errors.js";
import { checkText, flag, safeRepr } from "../support/values.js";
import { filled, readAnswerTemplate, valueText } from "./answer_template.js";

/** @import { Section } from "./answer_template.js" */

/**
 * @typedef {{type: "function", function: {name: string, description?: string, parameters: Schema}, answer?: string}} ToolDefinition
 *   in OpenAI's form, with its answer template
 */
/** @typedef {Record<string, any>} Schema */

/**
 * @typedef {object} Parameter
 * @property {string} name
 * @property {"string" | "integer" | "number" | "choice"} kind
 * @property {boolean} isRequired
 * @property {boolean} isPositional  the compact form has its value without its name
 * @property {Map<string, unknown>} choices  text -> value
 * @property {number} low  of numbers
 * @property {number} high
 * @property {boolean} isList
 * @property {number} shortest  items of a list
 * @property {number} longest
 */

/** @typedef {{name: string, parameters: Parameter[], inText: Parameter[], answer: Section[] | null}} Tool  `inText`: in the order of the compact form */

/**
 * @typedef {object} CallLimits  What one answer may call.
 * @property {Record<string, readonly string[]>} [names]  argument, or "Tool.argument" -> its allowed values
 * @property {readonly string[]} [tools]  names of the tools; default: all
 * @property {boolean} [required]  at least one call
 * @property {boolean} [several]  more than one call; default true
 */

const LARGEST = Number.MAX_SAFE_INTEGER;
const LONGEST_LIST = 1000;

/** @param {readonly ToolDefinition[]} definitions @returns {Tool[]} */
export function readTools(definitions) {
  return definitions.map(({ function: { name, parameters }, answer }) => {
    const required = new Set(parameters.required ?? []);
    const read = Object.entries(parameters.properties ?? {}).map(([key, part]) => parameterOf(key, part, parameters, required.has(key)));
    return withOrder(name, read, answer === undefined ? null : readAnswerTemplate(answer));
  });
}

/** @param {string} name @param {Parameter[]} parameters @param {Section[] | null} answer @returns {Tool} */
function withOrder(name, parameters, answer) {
  const inText = [...parameters.filter((one) => one.isPositional), ...parameters.filter((one) => !one.isPositional)];
  return { name, parameters, inText, answer };
}

/**
 * Return the answer to a call's result: the filled template, else the result as text.
 * @param {Tool} tool @param {Record<string, unknown>} values  the call's arguments @param {unknown} result
 */
export function resultText({ name, answer }, values, result) {
  if (answer) return filled(answer, name, values, result);
  return result === null || result === undefined ? "" : valueText(result);
}

/** @param {string} name @param {Schema} given @param {Schema} root @param {boolean} isRequired @returns {Parameter} */
function parameterOf(name, given, root, isRequired) {
  let [part, isNullable] = resolved(given, root);
  const isList = part.type === "array";
  const { minItems: shortest = 0, maxItems: longest = LONGEST_LIST } = isList ? part : {};
  if (isList) [part] = resolved(part.items, root);
  const shared = { name, isRequired, isPositional: isRequired && !isNullable, isList, shortest, longest };
  const values = "const" in part ? [part.const] : part.enum ?? (part.type === "boolean" ? [true, false] : null);
  if (values) {
    const choices = new Map(values.map((/** @type {unknown} */ value) => [typeof value === "string" ? value : JSON.stringify(value), value]));
    return { ...shared, kind: "choice", choices, low: 0, high: 0 };
  }
  const low = Math.max(part.minimum ?? -LARGEST, (part.exclusiveMinimum ?? -LARGEST - 1) + 1);
  const high = Math.min(part.maximum ?? LARGEST, (part.exclusiveMaximum ?? LARGEST + 1) - 1);
  return { ...shared, kind: part.type, choices: new Map(), low, high };
}

/** Follow references and take null out. @param {Schema} part @param {Schema} root @returns {[Schema, boolean]} */
function resolved(part, root) {
  let isNullable = false;
  for (;;) {
    const options = part.anyOf ?? part.oneOf ?? part.allOf;
    if (typeof part.$ref === "string") {
      part = part.$ref.slice(2).split("/").reduce((/** @type {any} */ found, name) => found[name], root);
    } else if (options) {
      const [option] = options.filter((/** @type {Schema} */ one) => one.type !== "null");
      isNullable ||= options.length > 1;
      part = option;
    } else if (Array.isArray(part.type)) {
      isNullable ||= part.type.includes("null");
      part = { ...part, type: part.type.find((kind) => kind !== "null") };
    } else if (part.enum?.includes(null)) {
      isNullable = true;
      part = { ...part, enum: part.enum.filter((/** @type {unknown} */ value) => value !== null) };
    } else {
      return [part, isNullable];
    }
  }
}

/** @param {unknown} given @returns {CallLimits} */
export function checkLimits(given) {
  if (typeof given !== "object" || given === null) throw new InputError(`calls must be an object, got ${safeRepr(given)}`);
  const { names = {}, tools, required = false, several = true, ...more } = /** @type {CallLimits} */ (given);
  const [odd] = Object.keys(more);
  if (odd !== undefined) throw new InputError(`calls: unknown option ${safeRepr(odd)} (known: names, tools, required, several)`);
  for (const [name, values] of Object.entries(names)) {
    if (!Array.isArray(values) || !values.length || !values.every((text) => typeof text === "string" && text.trim())) {
      throw new InputError(`names: ${name} must be a list of texts, got ${safeRepr(values)}`);
    }
    for (const text of values) checkText(text);
  }
  return { names, tools, required: flag("required", required), several: flag("several", several) };
}

/** Return only the tools and values that the limits allow. @param {readonly Tool[]} all @param {CallLimits} limits */
export function limited(all, { names = {}, tools }) {
  const chosen = tools ? [...new Set(tools)].map((name) => toolNamed(all, name, "tools")) : all;
  const open = new Set(all.flatMap((tool) =>
    tool.parameters.filter(({ kind }) => kind === "string").flatMap(({ name }) => [name, `${tool.name}.${name}`]),
  ));
  for (const name of Object.keys(names)) {
    if (!open.has(name)) {
      const known = [...open].sort().join(", ").slice(0, 200) || "none";
      throw new InputError(`names: no argument ${safeRepr(name)} takes a text (known: ${known})`);
    }
  }
  return chosen.map((tool) => withOrder(tool.name, tool.parameters.map((parameter) => {
    const values = names[`${tool.name}.${parameter.name}`] ?? names[parameter.name];
    if (!values || parameter.kind !== "string") return parameter;
    /** @type {Map<string, unknown>} as listed, or in lower case: the first of equal ones counts */
    const choices = new Map([...values].reverse().map((value) => [value.toLowerCase(), value]));
    for (const value of values) choices.set(value, value);
    return { ...parameter, kind: "choice", choices };
  }), tool.answer));
}

/** @param {readonly Tool[]} tools @param {unknown} name @param {string} place */
export function toolNamed(tools, name, place) {
  const tool = tools.find((one) => one.name === name);
  if (tool) return tool;
  const known = tools.map((one) => one.name).join(", ").slice(0, 200);
  throw new InputError(`${place}: there is no tool ${safeRepr(name)} (known: ${known})`);
}
