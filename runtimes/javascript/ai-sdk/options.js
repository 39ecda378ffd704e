// What the AI SDK asks for, as a prompt and options of this package.
import { InputError } from "../errors.js";
import { checkOptions } from "../support/values.js";
import { readPrompt } from "./prompt.js";
import { CatalogueCalls } from "./catalogue_calls.js";
import { Calls } from "./tools.js";

/** @import { LanguageModelV3CallOptions, SharedV3Warning } from "@ai-sdk/provider" */
/** @import { Model } from "../model.js" */
/** @import { CallKeys } from "./tools.js" */

/** @param {LanguageModelV3CallOptions} given @param {Model} model @param {CallKeys} keys */
export function languageModelOptions(given, model, keys) {
  /** @type {SharedV3Warning[]} */
  const warnings = [];
  for (const tool of given.tools ?? []) {
    if (tool.type !== "function") warnings.push({ type: "unsupported", feature: `the provider's tool ${tool.id}` });
  }
  const calls = model.tools?.length ? CatalogueCalls.of(given, model) : Calls.of(given, keys);
  const { system, messages } = readPrompt(given.prompt, keys);
  const told = calls instanceof Calls && !model.isTask ? [system ?? model.defaultSystem, calls.described()].filter(Boolean).join("\n\n") : system;
  const seed = given.seed !== undefined && given.seed < 0 ? BigInt.asUintN(64, BigInt(given.seed)) : given.seed;
  const options = {
    maxTokens: given.maxOutputTokens,
    temperature: given.temperature,
    topP: given.topP,
    topK: given.topK,
    presencePenalty: given.presencePenalty,
    frequencyPenalty: given.frequencyPenalty,
    stop: given.stopSequences,
    seed,
    ...structure(given, calls),
    ...checkOptions(given.providerOptions?.hamburger ?? {}),
    system: told,
    signal: given.abortSignal,
  };
  return { prompt: { messages }, options, calls, warnings };
}

/** What the answer must look like: a call, JSON by a schema, either of them, or words too. @param {LanguageModelV3CallOptions} given @param {Calls | CatalogueCalls | null} calls */
function structure({ responseFormat, toolChoice }, calls) {
  const format = responseFormat?.type === "json" ? (responseFormat.schema ?? { type: "object" }) : null;
  if (!calls) return format ? { jsonSchema: format } : {};
  if (format && calls.isChosen) {
    throw new InputError(`toolChoice ${toolChoice?.type} leaves no answer in a format: leave one of them out`);
  }
  if (calls instanceof CatalogueCalls) {
    if (format) throw new InputError("this model answers with calls of its tools: leave the format or the tools out");
    return { calls: calls.limits };
  }
  return format ? { jsonSchema: calls.schema(format) } : { jsonSchema: calls.schema(), allowText: !calls.isChosen };
}
