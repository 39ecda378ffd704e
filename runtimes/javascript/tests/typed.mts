// What an app in TypeScript sees of the packed package; `test_javascript.py` of the repository compiles it.
import { InputError, type Chunk, type FinishReason, type Message, type Options, type Result } from "hamburger-edge";
import { languageModel } from "hamburger-edge/ai-sdk";
import { load } from "hamburger-edge/node";
import { load as loadWeb, type Progress } from "hamburger-edge/web";
import { generateText } from "ai";

const options: Options = { mode: "hybrid", confidence: 0.9, maxTokens: 12 };
const model = await load("bundle", { threads: 1 });
for await (const chunk of model.stream({ messages: [{ role: "user", content: "Hello" }] }, options)) {
  const { tokens, text, finishReason }: Chunk = chunk;
  const ends: FinishReason | null = finishReason;
  console.log(tokens.length, text.length, ends);
}
const { stats, groups } = await model.generate("Hello", options);
const result: Result = await model.stream("Hello").result();
const { certainty, unsure } = await model.generate("Hello", { ...options, minCertainty: 0.9 });
const isSure: boolean = certainty !== null && certainty > 0.9 && !unsure;
const messages: Message[] = [{ role: "user", content: "Hello" }, { role: "assistant", content: result.text }];
const chat = model.chat({ messages, ...options });
console.log((await chat.send("And?").result()).complete, model.chat("Be brief.", options).messages.length);
const perStep: number = stats.tokensPerStep + groups.length;
const told = (progress: Progress): number => progress.loaded / progress.total;
await loadWeb("/bundle", { onProgress: (progress) => void told(progress) });
const { text } = await generateText({ model: languageModel(model), prompt: "Hello" });
console.log(perStep, isSure, text, InputError.name);
// @ts-expect-error no such mode
await model.generate("Hello", { mode: "fast" });
// @ts-expect-error messages go into an object
await model.generate(messages);
// @ts-expect-error no such role
await model.generate({ messages: [{ role: "tool", content: "x" }] });
// @ts-expect-error no such option
await model.generate("Hello", { max_tokens: 3 });
// @ts-expect-error a chunk's text is a string
for await (const { text } of model.stream("Hello")) text.length = "a";
