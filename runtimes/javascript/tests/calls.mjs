// Prints the calls of the bundle in BUNDLE for a JSON list of [prompt, options], one JSON line each, and the answer if
// each call has the result RESULT.
import { load } from "../adapters/onnxruntime-node.js";

const model = await load(String(process.env.BUNDLE), { threads: 1 });
for (const [prompt, options] of JSON.parse(String(process.env.PROMPTS))) {
  const calls = await model.call(prompt, options);
  console.log(JSON.stringify({ calls, text: model.resultText(calls, calls.map(() => String(process.env.RESULT))) }));
}
await model.close();
