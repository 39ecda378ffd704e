// Tools of a model that learned them: nothing is added to its prompt, and its answers are in the compact form.
import { limited, readTools, toolNamed } from "../calls/catalogue.js";
import { NO_CALL, parseCalls } from "../calls/compact_form.js";

/** @import { LanguageModelV3CallOptions } from "@ai-sdk/provider" */
/** @import { CallLimits } from "../calls/catalogue.js" */
/** @import { Model } from "../model.js" */

export class CatalogueCalls {
  /** @param {ReturnType<typeof limited>} tools @param {CallLimits} limits @param {string | null} result  of tools that ran last */
  constructor(tools, limits, result) {
    this.tools = tools;
    this.limits = limits;
    this.result = result;
    this.isChosen = true; // an answer is never plain text
  }

  /** Null where nothing may be called. @param {LanguageModelV3CallOptions} given @param {Model} model */
  static of({ tools = [], toolChoice = { type: "auto" }, prompt }, model) {
    const names = tools.filter(({ type }) => type === "function").map(({ name }) => name);
    if (!names.length) return null;
    const all = readTools(model.tools);
    for (const name of names) toolNamed(all, name, "tools");
    const last = prompt.at(-1);
    const result = last?.role === "tool" ? resultsOf(last.content) : null;
    const isSilent = toolChoice.type === "none" || result !== null;
    const chosen = toolChoice.type === "tool" ? [toolChoice.toolName] : names;
    const limits = isSilent ? { tools: [] } : { tools: chosen, required: toolChoice.type !== "auto" };
    return new CatalogueCalls(limited(all, limits), limits, result);
  }

  /** Whether an answer that begins like this is not to be shown. @param {string} _text */
  isCall(_text) {
    return true;
  }

  /** The calls of an answer; none if it was cut. @param {string} text */
  readAll(text) {
    try {
      const calls = parseCalls(text, this.tools, null);
      return calls.map(({ name, arguments: input }) => ({ toolName: name, input: JSON.stringify(input) }));
    } catch {
      return [];
    }
  }

  /** What to show of an answer without calls. @param {string} text */
  content(text) {
    return this.result ?? (text === NO_CALL ? "" : text);
  }
}

/** @param {Extract<LanguageModelV3CallOptions["prompt"][number], {role: "tool"}>["content"]} parts */
function resultsOf(parts) {
  const results = parts.flatMap((part) => (part.type === "tool-result" ? [part.output] : []));
  return results.map((output) => ("value" in output && typeof output.value === "string" ? output.value : JSON.stringify("value" in output ? output.value : output))).join("\n");
}
