// Assembles a model from a bundle's files. An adapter reads the files and provides the binding.
import { parseJson } from "./bundle/manifest.js";
import { ChatTemplate } from "./chat/template.js";
import { Tokenizer } from "./chat/tokenizer.js";
import { Model } from "./model.js";
import { OnnxBackend } from "./onnx/backend.js";

/** @import { Manifest } from "./bundle/manifest.js" */
/** @import { BackendOptions } from "./onnx/backend.js" */
/** @import { Runtime } from "./onnx/runtime.js" */

/**
 * @param {Manifest} manifest  from `readManifest`
 * @param {Uint8Array} tokenizer  content of the tokenizer's file
 * @param {Runtime} runtime
 * @param {BackendOptions} [options]
 */
export async function assemble(manifest, tokenizer, runtime, options = {}) {
  const text = new Tokenizer(parseJson(tokenizer, String(manifest.tokenizer)));
  const template = new ChatTemplate(manifest.chat_template);
  return new Model(await OnnxBackend.open(manifest, runtime, options), text, template);
}
