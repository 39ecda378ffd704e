// Bundles from an address, computed by onnxruntime-web: browsers, workers, Electron's windows.
import { download } from "../bundle/download.js";
import { BundleError, InputError, RuntimeUnavailableError, reason } from "../errors.js";
import { assemble } from "../loading.js";
import { FILE as DRAFT_INDEX } from "../drafts/draft_index.js";
import { checkOptions, flag, safeRepr, wholeIn } from "../support/values.js";

/** @import { Env } from "onnxruntime-common" */
/** @import { Manifest } from "../bundle/manifest.js" */
/** @import { Runtime } from "../onnx/runtime.js" */

export { clearStore } from "../bundle/store.js";

const OPTIONS = ["cacheSlots", "threads", "provider", "store", "onProgress", "signal", "headers", "wasmPaths"];

/** @typedef {import("../bundle/download.js").Progress} Progress */
/**
 * @typedef {object} LoadOptions
 * @property {number} [cacheSlots]  most slots of the KV cache; default 4096
 * @property {number} [threads]  default ONNX Runtime's choice; more than one need a cross-origin isolated page. The first
 *   model of a page sets it for all
 * @property {"wasm" | "webgpu"} [provider]  default "wasm"
 * @property {boolean} [store]  keep the files in the browser for the next load, which also continues a download that broke;
 *   default true
 * @property {(progress: Progress) => void} [onProgress]
 * @property {AbortSignal} [signal]  ends the download
 * @property {HeadersInit} [headers]  of each request: for example a server's key
 * @property {Env.WebAssemblyFlags["wasmPaths"]} [wasmPaths]  where onnxruntime-web finds its .wasm files
 */

/**
 * Open a bundle by the address of its folder.
 * @param {string | URL} address
 * @param {LoadOptions} [options]
 */
export async function load(address, options = {}) {
  const { cacheSlots, threads, provider = "wasm", store = true, onProgress, signal, headers, wasmPaths } =
    checkOptions(options, OPTIONS);
  checkAddress(address);
  flag("store", store);
  if (provider !== "wasm" && provider !== "webgpu") {
    throw new InputError(`provider must be "wasm" or "webgpu", got ${safeRepr(provider)}`);
  }
  const ort = await binding(provider);
  if (threads !== undefined) ort.env.wasm.numThreads = wholeIn("threads", threads, 1, 1024);
  if (wasmPaths !== undefined) ort.env.wasm.wasmPaths = wasmPaths;
  const check = provider === "webgpu" ? checkForGpu : undefined;
  const { manifest, contents } = await download(String(address), { isStored: store, check, onProgress, signal, headers });
  const taken = (/** @type {string} */ file) => /** @type {Uint8Array} */ (contents.get(file));
  const graphs = new Set(manifest.graphs.map(({ file }) => file));
  const externalData = [...contents]
    .filter(([path]) => !graphs.has(path) && path !== manifest.tokenizer && path !== DRAFT_INDEX)
    .map(([path, data]) => ({ path, data })); // the graphs' weights
  /** @type {Runtime} */
  const runtime = {
    provider,
    Tensor: ort.Tensor,
    bindsOutputs: false,
    keepsCacheOnDevice: provider === "webgpu",
    open: (file, given) =>
      ort.InferenceSession.create(taken(file), { ...given, executionProviders: [provider], externalData }),
    turn,
  };
  try {
    return await assemble(manifest, taken, runtime, { cacheSlots });
  } finally {
    contents.clear(); // the model keeps the runtime: free the files, of which ONNX Runtime has a copy
    externalData.length = 0;
  }
}

/** @param {unknown} address */
function checkAddress(address) {
  const text = typeof address === "string" || address instanceof URL ? String(address) : "";
  try {
    if (text) return new URL(text, globalThis.location?.href);
  } catch {} // told below
  throw new InputError(`a bundle is named by the address of its folder, got ${safeRepr(address)}: give its URL`);
}

/** Handle the worker's messages between two calls of the base, so that `signal` works during an answer. */
async function turn() {
  const { port1, port2 } = new MessageChannel();
  await new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
  port1.close();
}

/**
 * Refuse bundles that WebGPU computes wrongly. Its attention has no 8-bit cache and counts positions itself, so gaps
 * need a separate rotation, as with a 16-bit cache.
 * @param {Manifest} manifest @param {string} address
 */
function checkForGpu({ flavor, kv, model }, address) {
  const counts = kv.dtype === "float32" && model.position_rule === "slot";
  if (flavor === "portable" || kv.dtype === "float16" || counts) return;
  throw new BundleError(
    `${address}: WebGPU cannot compute this bundle's attention: export it with --kv-cache-dtype fp16 or --flavor portable, ` +
      'or load it with provider "wasm"',
  );
}

/** @param {"wasm" | "webgpu"} provider */
async function binding(provider) {
  try {
    return await (provider === "webgpu" ? import("onnxruntime-web/webgpu") : import("onnxruntime-web/wasm"));
  } catch (error) {
    throw new RuntimeUnavailableError(
      `onnxruntime-web does not start (${reason(error)}): run  npm install onnxruntime-web`,
      { cause: error },
    );
  }
}
