// node bench_node.mjs BUNDLE THREADS: for each line [prompt, options] of input, milliseconds until the first tokens,
// milliseconds of the whole answer, and its tokens.
import { createInterface } from "node:readline";
import { load } from "../../runtimes/javascript/adapters/onnxruntime-node.js";

const model = await load(process.argv[2], { threads: Number(process.argv[3]) });
for await (const line of createInterface({ input: process.stdin })) {
  const [prompt, options] = JSON.parse(line);
  const begin = performance.now();
  let first = 0;
  const stream = model.stream(prompt, { ...options, maxTokens: 128, reusePrefix: false });
  for await (const { tokens } of stream) if (tokens.length) first ||= performance.now() - begin;
  console.log(JSON.stringify([first, performance.now() - begin, stream.groups.flat()]));
}
await model.close();
