// The messages of the AI SDK as turns of a user and a model: what tools gave is told by the user.
import { InputError } from "../errors.js";
import { written } from "./tools.js";

/** @import { LanguageModelV3Prompt, LanguageModelV3ToolResultPart } from "@ai-sdk/provider" */
/** @import { Message } from "../chat/messages.js" */
/** @import { CallKeys } from "./tools.js" */

/**
 * @param {LanguageModelV3Prompt} prompt
 * @param {CallKeys} keys
 * @returns {{system: string | null, messages: Message[]}}  the messages without the system's
 */
export function readPrompt(prompt, keys) {
  /** @type {string[]} */
  const system = [];
  /** @type {{role: "user" | "assistant", texts: string[]}[]} */
  const turns = [];
  for (const message of prompt) {
    if (message.role === "system") {
      if (turns.length) throw new InputError("a system message stands behind others: put it first");
      system.push(message.content);
      continue;
    }
    const role = message.role === "assistant" ? "assistant" : "user";
    const text = message.content.map((part) => partText(part, keys)).filter((found) => found !== null);
    const joined = text.join(message.role === "tool" ? "\n\n" : "");
    const last = turns.at(-1);
    if (last?.role === role) last.texts.push(joined);
    else turns.push({ role, texts: [joined] });
  }
  const messages = turns.map(({ role, texts }) => ({ role, content: texts.join(role === "user" ? "\n\n" : "") }));
  return { system: system.length ? system.join("\n\n") : null, messages };
}

/**
 * Null: a part that a model does not read.
 * @param {Exclude<LanguageModelV3Prompt[number], {role: "system"}>["content"][number]} part @param {CallKeys} keys
 */
function partText(part, keys) {
  if (part.type === "text") return part.text;
  if (part.type === "tool-call") return written(part.toolName, part.input, keys);
  if (part.type === "tool-result") return `The result is ${resultText(part.output)}`;
  if (part.type !== "file") return null;
  throw new InputError(`a message holds a file of type ${part.mediaType}: this model reads text alone, leave it out`);
}

/** @param {LanguageModelV3ToolResultPart["output"]} output */
function resultText(output) {
  if (output.type === "text" || output.type === "error-text") return output.value;
  if (output.type === "json" || output.type === "error-json") return JSON.stringify(output.value);
  if (output.type === "execution-denied") return `that it was not allowed${output.reason ? `: ${output.reason}` : ""}`;
  return output.value.map((part) => (part.type === "text" ? part.text : `(${part.type})`)).join("");
}
