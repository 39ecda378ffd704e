// The tools of a model, from its manifest: names and parameters of the functions that its answers call. The Python
// package checked the schemas (hamburger_edge/calls/parameter_schema.py) and the answer templates.
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
 * @property {"string" | "integer" | "number" | "choice" | "object"} kind
 * @property {boolean} isRequired
 * @property {boolean} isPositional  the compact form has its value without its name
 * @property {string} mark  what stands before the value in the compact form
 * @property {Map<string, unknown>} choices  text -> value
 * @property {number} low  of numbers
 * @property {number} high
 * @property {boolean} isList
 * @property {number} shortest  items of a list
 * @property {number} longest
 * @property {Parameter[]} properties  of objects
 * @property {boolean} isCopied  strings are spans of the prompt
 */

/** @typedef {{name: string, parameters: Parameter[], answer: Section[] | null}} Tool */

/**
 * @typedef {object} CallLimits  What one answer may call.
 * @property {Record<string, readonly string[]>} [names]  argument, or "Tool.argument" -> its allowed values
 * @property {readonly string[]} [tools]  names of the tools; default: all
 * @property {boolean} [required]  at least one call
 * @property {boolean} [several]  more than one call; default true
 */

const LARGEST = Number.MAX_SAFE_INTEGER;
const LONGEST_LIST = 1000;
const MOST_LEVELS = 3; // objects inside each other
const MOST_REFERENCES = 8;
const ANNOTATIONS = ["$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"];
/** @type {Record<string, string[]>} */
const KEYWORDS = {
  choice: ["const", "enum"],
  string: [],
  boolean: [],
  integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  number: ["minimum", "maximum"],
  array: ["items", "minItems", "maxItems"],
  object: ["properties", "required", "additionalProperties"],
};

/** @param {readonly ToolDefinition[]} definitions @returns {Tool[]} */
export function readTools(definitions) {
  return definitions.map(({ function: { name, parameters }, answer }) => ({
    name,
    parameters: propertiesOf(parameters, parameters),
    answer: answer === undefined ? null : readAnswerTemplate(answer),
  }));
}

/** @param {Schema} schema @param {Schema} root @param {number} [level]  objects around it */
function propertiesOf({ properties = {}, required = [] }, root, level = 0) {
  if (level > MOST_LEVELS) throw new InputError(`more than ${MOST_LEVELS} objects inside each other: make properties arguments`);
  return Object.entries(properties).map(([key, part]) => parameterOf(key, part, root, required.includes(key), level));
}

/**
 * Refuse a tool that is not one of the model's, or has other parameters. Their order does not matter.
 * @param {readonly Tool[]} own @param {readonly {name: string, parameters: Schema}[]} requested
 */
export function checkOwn(own, requested) {
  for (const { name, parameters: schema } of requested) {
    const learned = formsOf(toolNamed(own, name, "tools").parameters);
    const forms = formsOf(readRequested(name, schema));
    for (const argument of new Set([...forms.keys(), ...learned.keys()])) {
      if (forms.get(argument) !== learned.get(argument)) {
        throw new InputError(`tools: ${name}: argument ${argument} differs from the model's: give its own`);
      }
    }
  }
}

/** @param {string} name @param {Schema} schema */
function readRequested(name, schema) {
  try {
    return propertiesOf(schema, schema);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    throw new InputError(`tools: ${name}: ${error.message}`);
  }
}

/** Parameters in a form whose equality does not depend on their order; an argument that may be left out may be null. @param {readonly Parameter[]} parameters @returns {Map<string, string>} */
function formsOf(parameters) {
  return new Map(parameters.map((parameter) => {
    const { name, kind, isRequired, isPositional, choices, low, high, isList, shortest, longest, properties } = parameter;
    const parts = [...formsOf(properties)].sort(([one], [other]) => (one < other ? -1 : 1));
    return [name, JSON.stringify([kind, isRequired, isPositional, [...choices].sort(), low, high, isList, shortest, longest, parts])];
  }));
}

/** In the order of the compact form: parameters without a name first. @param {readonly Parameter[]} parameters */
export function inTextOrder(parameters) {
  return [...parameters.filter((one) => one.isPositional), ...parameters.filter((one) => !one.isPositional)];
}

/** The names of parameters that take any text; `guest.name` is a property of an object. @param {readonly Parameter[]} parameters @returns {string[]} */
function stringPaths(parameters) {
  return parameters.flatMap(({ name, kind, properties }) =>
    kind === "string" ? [name] : stringPaths(properties).map((path) => `${name}.${path}`),
  );
}

/**
 * Return the answer to a call's result: the filled template, else the result as text.
 * @param {Tool} tool @param {Record<string, unknown>} values  the call's arguments @param {unknown} result
 */
export function resultText({ name, answer }, values, result) {
  if (answer) return filled(answer, name, values, result);
  return result === null || result === undefined ? "" : valueText(result);
}

/** @param {string} name @param {Schema} given @param {Schema} root @param {boolean} isRequired @param {number} level @returns {Parameter} */
function parameterOf(name, given, root, isRequired, level) {
  let [part, isNullable] = resolved(given, root);
  const isList = part.type === "array";
  if (isList) checkKeywords(name, part);
  const { minItems: shortest = 0, maxItems: longest = LONGEST_LIST } = isList ? part : {};
  if (isList) [part] = resolved(part.items, root);
  checkKeywords(name, part);
  const isPositional = isRequired && !isNullable;
  const shared = {
    ...{ name, isRequired, isPositional, mark: isPositional ? " " : ` ${name} `, isList, shortest, longest },
    ...{ choices: new Map(), low: 0, high: 0, properties: [], isCopied: false },
  };
  if (part.properties) return { ...shared, kind: "object", properties: propertiesOf(part, root, level + 1) };
  const values = "const" in part ? [part.const] : part.enum ?? (part.type === "boolean" ? [true, false] : null);
  if (values) {
    const choices = new Map(values.map((/** @type {unknown} */ value) => [typeof value === "string" ? value : JSON.stringify(value), value]));
    return { ...shared, kind: "choice", choices };
  }
  const low = Math.max(part.minimum ?? -LARGEST, (part.exclusiveMinimum ?? -LARGEST - 1) + 1);
  const high = Math.min(part.maximum ?? LARGEST, (part.exclusiveMaximum ?? LARGEST + 1) - 1);
  return { ...shared, kind: part.type, low, high };
}

/** Refuse what an answer cannot follow. @param {string} name  of the argument @param {Schema} part */
function checkKeywords(name, part) {
  const isChoice = "const" in part || part.enum;
  const kind = isChoice ? "choice" : part.properties ? "object" : part.type;
  const known = KEYWORDS[kind];
  if (!known) throw new InputError(`${name}: type ${safeRepr(kind)} is not supported: use string, number or enum`);
  const unknown = Object.keys(part).find((key) => key !== "type" && !ANNOTATIONS.includes(key) && !known.includes(key));
  if (unknown) throw new InputError(`${name}: ${safeRepr(unknown)} is not supported: leave it out, and check the value in your function`);
}

/** Follow references and take null out. @param {Schema} part @param {Schema} root @returns {[Schema, boolean]} */
function resolved(part, root) {
  let isNullable = false;
  for (let step = 0; step < MOST_REFERENCES; step++) {
    if (typeof part !== "object" || part === null) throw new InputError(`must be a JSON schema, got ${safeRepr(part)}`);
    const options = part.anyOf ?? part.oneOf ?? part.allOf;
    if (typeof part.$ref === "string") {
      part = part.$ref.slice(2).split("/").reduce((/** @type {any} */ found, name) => found?.[name], root);
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
  throw new InputError("references go around in a circle: correct them");
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
  const open = new Set(all.flatMap((tool) => stringPaths(tool.parameters).flatMap((path) => [path, `${tool.name}.${path}`])));
  for (const name of Object.keys(names)) {
    if (!open.has(name)) {
      const known = [...open].sort().join(", ").slice(0, 200) || "none";
      throw new InputError(`names: no argument ${safeRepr(name)} takes a text (known: ${known})`);
    }
  }
  return chosen.map((tool) => changed(tool, (parameter, path) => withNames(parameter, path, tool.name, names)));
}

/** Return tools whose strings at these paths are spans of the prompt. @param {readonly Tool[]} tools @param {readonly string[]} paths */
export function copying(tools, paths) {
  return tools.map((tool) => changed(tool, (parameter, path) => ({ ...parameter, isCopied: paths.includes(path) })));
}

/** Change each parameter of a tool by its path; properties of objects come first. @param {Tool} tool @param {(parameter: Parameter, path: string) => Parameter} change @returns {Tool} */
function changed(tool, change) {
  /** @param {readonly Parameter[]} parameters @param {string} prefix @returns {Parameter[]} */
  const all = (parameters, prefix) => parameters.map((parameter) => {
    const path = prefix + parameter.name;
    return change({ ...parameter, properties: all(parameter.properties, `${path}.`) }, path);
  });
  return { ...tool, parameters: all(tool.parameters, "") };
}

/**
 * Give a string parameter its allowed values, as listed or in lower case.
 * @param {Parameter} parameter @param {string} path @param {string} tool @param {Record<string, readonly string[]>} names
 * @returns {Parameter}
 */
function withNames(parameter, path, tool, names) {
  const values = names[`${tool}.${path}`] ?? names[path];
  if (!values || parameter.kind !== "string") return parameter;
  /** @type {Map<string, unknown>} the first of equal ones counts */
  const choices = new Map([...values].reverse().map((value) => [value.toLowerCase(), value]));
  for (const value of values) choices.set(value, value);
  return { ...parameter, kind: "choice", choices };
}

/** @param {readonly Tool[]} tools @param {unknown} name @param {string} place */
export function toolNamed(tools, name, place) {
  const tool = tools.find((one) => one.name === name);
  if (tool) return tool;
  const known = tools.map((one) => one.name).join(", ").slice(0, 200);
  throw new InputError(`${place}: there is no tool ${safeRepr(name)} (known: ${known})`);
}
