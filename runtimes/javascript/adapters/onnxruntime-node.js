// Bundles in a folder, computed by onnxruntime-node: Node.js, and Electron's main process.
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { wayToBundle } from "../bundle/built_in.js";
import { checkContent, checkSize } from "../bundle/files.js";
import { FILE_NAME, filesToRun, readManifest } from "../bundle/manifest.js";
import { checkManifest } from "../bundle/manifest_hash.js";
import { BundleError, InputError, RuntimeUnavailableError, reason } from "../errors.js";
import { assemble } from "../loading.js";
import { checkOptions, flag, safeRepr } from "../support/values.js";

/** @import { Runtime } from "../onnx/runtime.js" */

const OPTIONS = ["cacheSlots", "threads", "verify"];

/**
 * Open a bundle. `cacheSlots`: most slots of the KV cache, default 4096; `threads`: default ONNX Runtime's choice;
 * `verify`: check every file's hash first.
 * @param {string} folder
 * @param {{cacheSlots?: number, threads?: number, verify?: boolean}} [options]
 */
export async function load(folder, options = {}) {
  if (typeof folder !== "string") throw new InputError(`a bundle is named by its path, got ${safeRepr(folder)}`);
  const { verify = false, ...more } = checkOptions(options, OPTIONS);
  flag("verify", verify);
  /** @param {string} file @returns {Promise<Uint8Array>} */
  const read = (file) =>
    readFile(path.join(folder, file)).catch((error) => {
      const made = wayToBundle(folder, `make a bundle with  hamburger-edge export CHECKPOINT -o ${folder}`);
      const way = file === FILE_NAME ? made : "copy the whole bundle again";
      throw new BundleError(`${path.join(folder, file)}: cannot be read (${error.code}): ${way}`, { cause: error });
    });
  const written = await read(FILE_NAME);
  const manifest = readManifest(written, folder);
  await checkManifest(written, folder);
  for (const entry of filesToRun(manifest)) {
    if (verify) await checkContent(await read(entry.path), entry, folder);
    else {
      const found = await stat(path.join(folder, entry.path)).catch(() => null);
      if (!found) throw new BundleError(`${path.join(folder, entry.path)}: missing: copy the whole bundle again`);
      checkSize(found.size, entry, folder);
    }
  }
  return assemble(manifest, read, await runtime(folder), more);
}

/** @param {string} folder @returns {Promise<Runtime>} */
async function runtime(folder) {
  const ort = await import("onnxruntime-node").catch((error) => {
    throw new RuntimeUnavailableError(
      `onnxruntime-node does not start (${reason(error)}): run  npm install onnxruntime-node`,
      { cause: error },
    );
  });
  return {
    provider: "cpu",
    Tensor: ort.Tensor,
    bindsOutputs: true,
    keepsCacheOnDevice: false,
    open: (file, options) => ort.InferenceSession.create(path.join(folder, file), options),
  };
}
