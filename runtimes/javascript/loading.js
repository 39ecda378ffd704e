// Assembles a model from a bundle's files. An adapter reads the files and provides the binding.
import { parseJson } from "./bundle/manifest.js";
import { ChatTemplate } from "./chat/template.js";
import { Tokenizer } from "./chat/tokenizer.js";
import { DraftIndex, FILE } from "./drafts/draft_index.js";
import { Model } from "./model.js";
import { OnnxBackend } from "./onnx/backend.js";

/** @import { Manifest } from "./bundle/manifest.js" */
/** @import { BackendOptions } from "./onnx/backend.js" */
/** @import { Runtime } from "./onnx/runtime.js" */

/**
 * @param {Manifest} manifest  from `readManifest`
 * @param {(file: string) => Uint8Array | Promise<Uint8Array>} read  content of a file that the manifest lists
 * @param {Runtime} runtime
 * @param {BackendOptions} [options]
 */
export async function assemble(manifest, read, runtime, options = {}) {
  const text = new Tokenizer(parseJson(await read(String(manifest.tokenizer)), String(manifest.tokenizer)));
  const isIndexed = manifest.files.some(({ path }) => path === FILE);
  const draftIndex = isIndexed ? new DraftIndex(await read(FILE), manifest.model.vocab_size) : null;
  const template = new ChatTemplate(manifest.chat_template);
  return new Model(await OnnxBackend.open(manifest, runtime, { ...options, draftIndex }), text, template);
}
