// Tools that a model may call: their schemas become the structure of its answer. A call is
// `{"name": NAME, "arguments": {...}}`, or the same under names of the model's own.

/** @import { LanguageModelV3CallOptions, LanguageModelV3FunctionTool } from "@ai-sdk/provider" */

/** @typedef {{name: string, input: string}} CallKeys  What a call's name and its arguments are written under. */
/** @typedef {Record<string, unknown>} Schema */

export class Calls {
  #tools;
  #keys;

  /** @param {LanguageModelV3FunctionTool[]} tools @param {CallKeys} keys @param {boolean} isChosen  one must be called */
  constructor(tools, keys, isChosen) {
    this.#tools = tools;
    this.#keys = keys;
    this.isChosen = isChosen;
  }

  /** Null where nothing may be called. @param {LanguageModelV3CallOptions} given @param {CallKeys} keys */
  static of({ tools = [], toolChoice = { type: "auto" } }, keys) {
    const functions = tools.filter((tool) => tool.type === "function");
    const wanted = toolChoice.type === "tool" ? functions.filter(({ name }) => name === toolChoice.toolName) : functions;
    if (!wanted.length || toolChoice.type === "none") return null;
    return new Calls(wanted, keys, toolChoice.type !== "auto");
  }

  /** Of an answer that is a call, or else follows one of the other schemas. @param {Schema[]} others @returns {Schema} */
  schema(...others) {
    const { name, input } = this.#keys;
    const calls = this.#tools.map((tool) => (/** @type {string} */ place) => ({
      type: "object",
      properties: { [name]: { const: tool.name }, [input]: moved(tool.inputSchema, `${place}/properties/${input}`) },
      required: [name, input],
      additionalProperties: false,
    }));
    const all = [...calls, ...others.map((schema) => (/** @type {string} */ place) => moved(schema, place))];
    if (all.length === 1) return all[0]("#");
    return { // xgrammar follows no reference through a list
      anyOf: all.map((_, index) => ({ $ref: `#/$defs/${index}` })),
      $defs: Object.fromEntries(all.map((make, index) => [index, make(`#/$defs/${index}`)])),
    };
  }

  /** For the system text: what there is to call, and how. */
  described() {
    const lines = this.#tools.map(({ name, description = "", inputSchema: { $schema, ...parameters } }) =>
      spaced({ name, description, parameters }),
    );
    const { name, input } = this.#keys;
    return `Functions that you can call:\n${lines.join("\n")}\nTo call, answer with {"${name}": NAME, "${input}": {...}} alone.`;
  }

  /** Whether an answer that begins like this is no words. @param {string} text */
  isCall(text) {
    return this.isChosen || text.startsWith("{");
  }

  /** The calls of an answer. @param {string} text */
  readAll(text) {
    const call = this.read(text);
    return call ? [call] : [];
  }

  /** What to show of an answer without calls. @param {string} text */
  content(text) {
    return text;
  }

  /** Null where it is words, another object, or was cut. @param {string} text */
  read(text) {
    const said = this.isCall(text) ? parsed(text) : null;
    const tool = this.#tools.find(({ name }) => name === said?.[this.#keys.name]);
    if (!tool || !(this.#keys.input in said)) return null;
    return { toolName: tool.name, input: spaced(said[this.#keys.input]) };
  }
}

/** A call as a model says it. @param {string} name @param {unknown} input @param {CallKeys} keys */
export function written(name, input, keys) {
  return spaced({ [keys.name]: name, [keys.input]: input });
}

/** JSON as models write it: in a line, a blank behind each comma and colon. @param {unknown} value */
function spaced(value) {
  return JSON.stringify(value, null, 1).replace(/,\n\s*/g, ", ").replace(/\n\s*/g, "");
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * A schema inside of another one: what it refers to is there too.
 * @param {any} schema @param {string} place
 * @returns {any}
 */
function moved(schema, place) {
  if (Array.isArray(schema)) return schema.map((part) => moved(part, place));
  if (typeof schema !== "object" || schema === null) return schema;
  const entries = Object.entries(schema).map(([key, value]) => {
    const isOwn = key === "$ref" && typeof value === "string" && value.startsWith("#");
    return [key, isOwn ? place + value.slice(1) : moved(value, place)];
  });
  return Object.fromEntries(entries.filter(([key]) => key !== "$schema"));
}
