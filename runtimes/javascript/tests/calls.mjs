// Prints the calls of the bundle in BUNDLE for a JSON list of [prompt, options], one JSON line each.
import { load } from "../adapters/onnxruntime-node.js";

const model = await load(String(process.env.BUNDLE), { threads: 1 });
for (const [prompt, options] of JSON.parse(String(process.env.PROMPTS))) {
  console.log(JSON.stringify(await model.call(prompt, options)));
}
await model.close();
