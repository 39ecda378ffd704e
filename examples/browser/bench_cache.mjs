// node bench_cache.mjs BUNDLE...: CPU time of a macro step in Node.js by the slots that the cache has, of which a hundred
// are in use. A portable bundle's cache has as many as it was exported with (--cache-slots).
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { readManifest } from "../../runtimes/javascript/index.js";
import { OnnxBackend } from "../../runtimes/javascript/onnx/backend.js";
import { STEP } from "../../runtimes/javascript/onnx/cache.js";

const ort = createRequire(new URL("../../runtimes/javascript/index.js", import.meta.url))("onnxruntime-node");
const [USED, STEPS, ROUNDS] = [100, 12, 3];

/** Milliseconds, the lowest of the rounds; what comes first warms up. @param {OnnxBackend} backend */
async function step(backend) {
  let lowest = Infinity;
  for (let round = 0; round <= ROUNDS; round++) {
    backend.truncate(USED);
    const begin = process.cpuUsage();
    for (let i = 0; i < STEPS; i++) await backend.macro([[7]], [USED + i], [0]);
    const { user, system } = process.cpuUsage(begin);
    if (round) lowest = Math.min(lowest, (user + system) / 1000 / STEPS);
  }
  return lowest;
}

console.log("| bundle | slots | ms of a step |\n|---|---|---|");
for (const folder of process.argv.slice(2)) {
  const manifest = readManifest(readFileSync(path.join(folder, "manifest.json")), folder);
  const { flavor, precision, cache_slots: fixed } = manifest;
  const runtime = {
    provider: "cpu",
    Tensor: ort.Tensor,
    bindsOutputs: true,
    keepsCacheOnDevice: false,
    open: (file, options) => ort.InferenceSession.create(path.join(folder, file), options),
  };
  const backend = await OnnxBackend.open(manifest, runtime, { threads: 1, context: fixed || 8192 });
  const sizes = [256, 512, 1024, 2048, 4096, 8192].filter((slots) => slots <= backend.info.capacity);
  for (const slots of fixed ? [fixed] : sizes) {
    const filled = fixed ? USED : slots - STEP + 1; // what makes the cache grow to so many
    for (let at = backend.slots; at < filled; at = backend.slots) {
      const places = Array.from({ length: Math.min(STEP, filled - at) }, (_, i) => at + i);
      await backend.macro(places.map((place) => [3 + (place % 300)]), places, [places.length - 1]);
    }
    console.log(`| ${flavor} ${precision.base} | ${slots} | ${(await step(backend)).toFixed(1)} |`);
  }
  await backend.close();
}
