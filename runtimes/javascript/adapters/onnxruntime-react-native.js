// Bundles in an app's folder, computed by onnxruntime-react-native. Untried: written against its types.
import { checkSize } from "../bundle/files.js";
import { FILE_NAME, filesToRun, readManifest } from "../bundle/manifest.js";
import { RuntimeUnavailableError, reason } from "../errors.js";
import { assemble } from "../loading.js";

/** @import { Runtime } from "../onnx/runtime.js" */

/**
 * Open a bundle in a folder of the device. React Native cannot read files: pass a `read` of a library of the app.
 * `threads`: default ONNX Runtime's choice.
 * @param {string} folder
 * @param {{read: (path: string) => Promise<Uint8Array>, cacheSlots?: number, threads?: number}} options
 */
export async function load(folder, { read, ...options }) {
  const manifest = readManifest(await read(`${folder}/${FILE_NAME}`), folder);
  /** @param {string} file */
  const checked = async (file) => {
    const content = await read(`${folder}/${file}`);
    for (const entry of filesToRun(manifest)) if (entry.path === file) checkSize(content.length, entry, folder);
    return content;
  };
  return assemble(manifest, checked, await runtime(folder), options);
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
