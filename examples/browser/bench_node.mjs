// node bench_node.mjs BUNDLE THREADS: for each line [prompt, tokens, options] of input, tokens a second.
import { createInterface } from "node:readline";
import { load } from "../../runtimes/javascript/adapters/onnxruntime-node.js";

const model = await load(process.argv[2], { threads: Number(process.argv[3]) });
for await (const line of createInterface({ input: process.stdin })) {
  const [prompt, maxTokens, options] = JSON.parse(line);
  const { stats } = await model.generate(prompt, { ...options, maxTokens, ignoreEos: true, reusePrefix: false });
  console.log(stats.decodeRate);
}
await model.close();
