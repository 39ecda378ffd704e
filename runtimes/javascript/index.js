// The core, without files or binding. Applications use `load` of "hamburger-edge/node", "/web" or "/react-native". Your
// own adapter passes a manifest, a function that reads its files and a `Runtime` to `assemble`.
export { filesToRun, readManifest } from "./bundle/manifest.js";
export { checkManifest } from "./bundle/manifest_hash.js";
export { checkContent, checkSize } from "./bundle/files.js";
export { Chat } from "./chat/conversation.js";
export { Stream } from "./chat/stream.js";
export * from "./errors.js";
export { assemble } from "./loading.js";
export { setDial } from "./loop/dial.js";
export { Stats } from "./loop/stats.js";
export { Model } from "./model.js";

/** @typedef {import("./calls/compact_form.js").Call} Call */
/** @typedef {import("./calls/catalogue.js").CallLimits} CallLimits */
/** @typedef {import("./chat/messages.js").Message} Message */
/** @typedef {import("./chat/conversation.js").Turn} Turn */
/** @typedef {import("./chat/stream.js").Chunk} Chunk */
/** @typedef {import("./chat/stream.js").Result} Result */
/** @typedef {import("./loop/sampling.js").TopToken} TopToken */
/** @typedef {import("./loop/dial.js").Mode} Mode */
/** @typedef {import("./loop/backend.js").ModelInfo} ModelInfo */
/** @typedef {import("./loop/dial.js").Recommended} Recommended */
/** @typedef {import("./loop/settings.js").Options} Options */
/** @typedef {import("./loop/step.js").FinishReason} FinishReason */
/** @typedef {import("./model.js").Asking} Asking */
/** @typedef {import("./model.js").Beginning} Beginning */
/** @typedef {import("./model.js").Prompt} Prompt */
/** @typedef {import("./onnx/backend.js").BackendOptions} BackendOptions */
/** @typedef {import("./onnx/runtime.js").Runtime} Runtime */
