// A conversation as a list of { role, content }, the format of OpenAI and of the AI SDK.
import { InputError } from "../errors.js";
import { checkText, safeRepr } from "../support/values.js";

/** @typedef {{role: "system" | "user" | "assistant", content: string}} Message  `system` only as the first one */

/** @typedef {{system: string | null, turns: string[]}} Transcript  system text (null: the template's default), and user, answer, user, ... */

const ROLES = ["system", "user", "assistant"];

/**
 * Check messages: an optional system message, then the user's and the assistant's in turn.
 * @param {unknown} messages
 * @param {string | null} system  a system text that was given elsewhere
 * @returns {Transcript}
 */
export function readMessages(messages, system) {
  if (!Array.isArray(messages)) throw new InputError(`messages must be an array of messages, got ${safeRepr(messages)}`);
  /** @type {string[]} */
  const turns = [];
  for (const [index, message] of messages.entries()) {
    const { role, content } = read(message, `messages[${index}]`);
    if (role === "system") {
      if (index) throw new InputError(`messages[${index}]: the system's message must be the first`);
      if (system !== null) throw new InputError("messages hold a system text: leave system out");
      system = content;
      continue;
    }
    if (role !== (turns.length % 2 ? "assistant" : "user")) {
      const wanted = role === "assistant" ? "the user" : "the assistant";
      throw new InputError(`messages[${index}]: a message of ${wanted} must come before: join or reorder them`);
    }
    if (role === "user" && !content) throw new InputError(`messages[${index}] is empty: say something`);
    turns.push(content);
  }
  return { system, turns };
}

/** @param {any} message @param {string} place @returns {Message} */
function read(message, place) {
  const names = typeof message === "object" && message !== null ? Object.keys(message).sort().join() : "";
  if (names !== "content,role") {
    throw new InputError(`${place} must have a role and a content and nothing else, got ${safeRepr(message)}`);
  }
  if (!ROLES.includes(message.role)) {
    throw new InputError(`${place}.role must be ${ROLES.join(", ")}, got ${safeRepr(message.role)}`);
  }
  checkText(message.content, `${place}.content`);
  return message;
}
