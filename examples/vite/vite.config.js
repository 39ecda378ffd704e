import { defineConfig } from "vite";

export default defineConfig({
  worker: { format: "es" }, // the package's imports in a worker need modules
  // for processors only; without this line the build also has the 27 MB of WebGPU
  resolve: { alias: { "onnxruntime-web/webgpu": "onnxruntime-web/wasm" } },
});
