// Bundles in an app's folder, computed by onnxruntime-react-native. Tested with
// onnxruntime-node in its place, not on phones.
import { wayToBundle } from "../bundle/built_in.js";
import { checkSize } from "../bundle/files.js";
import { FILE_NAME, filesToRun, readManifest } from "../bundle/manifest.js";
import { BundleError, InputError, RuntimeUnavailableError, reason } from "../errors.js";
import { assemble } from "../loading.js";
import { checkOptions, safeRepr } from "../support/values.js";

/** @import { Manifest } from "../bundle/manifest.js" */
/** @import { Runtime } from "../onnx/runtime.js" */

const OPTIONS = ["read", "cacheSlots", "threads"];

/**
 * Open a bundle in a folder of the device, exported with `--kv-cache-dtype fp32`. React Native cannot read files: pass a `read` of a library of the app.
 * `threads`: default ONNX Runtime's choice.
 * @param {string} folder
 * @param {{read: (path: string) => Promise<Uint8Array>, cacheSlots?: number, threads?: number}} options
 */
export async function load(folder, options) {
  if (typeof folder !== "string") throw new InputError(`a bundle is named by its path, got ${safeRepr(folder)}`);
  const { read: given, ...more } = checkOptions(options, OPTIONS);
  if (typeof given !== "function") {
    throw new InputError(`read must be a function that returns a file's bytes, got ${safeRepr(given)}: use the app's file library`);
  }
  /** @param {string} file */
  const read = async (file) => {
    const path = `${folder}/${file}`;
    const content = await Promise.resolve(path).then(given).catch((error) => {
      const way = wayToBundle(folder, "copy the whole bundle into the app");
      throw new BundleError(`${path}: cannot be read (${reason(error)}): ${way}`, { cause: error });
    });
    if (ArrayBuffer.isView(content)) return content;
    throw new InputError(`read returned ${safeRepr(content)} for ${path}: it must return the bytes, as a Uint8Array`);
  };
  const manifest = readManifest(await read(FILE_NAME), folder);
  checkCache(manifest, folder);
  /** @param {string} file */
  const checked = async (file) => {
    const content = await read(file);
    for (const entry of filesToRun(manifest)) if (entry.path === file) checkSize(content.length, entry, folder);
    return content;
  };
  return assemble(manifest, checked, await runtime(folder), more);
}

/**
 * Refuse bundles that the binding cannot open: it carries ONNX Runtime 1.24, whose attention knows float32 caches only.
 * @param {Manifest} manifest @param {string} folder
 */
function checkCache({ kv }, folder) {
  if (kv.dtype === "float32") return;
  throw new BundleError(
    `${folder}: its KV cache is ${kv.dtype}, and onnxruntime-react-native computes float32 caches only: ` +
      "export it with --kv-cache-dtype fp32",
  );
}

/** @param {string} folder @returns {Promise<Runtime>} */
async function runtime(folder) {
  /** @type {typeof import("onnxruntime-common")} */
  let ort;
  try {
    // @ts-ignore: only installed in apps; its types are onnxruntime-common's
    ort = await import("onnxruntime-react-native");
  } catch (error) {
    throw new RuntimeUnavailableError(
      `onnxruntime-react-native does not start (${reason(error)}): run  npm install onnxruntime-react-native`,
      { cause: error },
    );
  }
  return {
    provider: "cpu",
    Tensor: ort.Tensor,
    bindsOutputs: false,
    keepsCacheOnDevice: false,
    open: (file, options) => ort.InferenceSession.create(`${folder}/${file}`, options),
  };
}
