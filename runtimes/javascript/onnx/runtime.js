// The interface of a binding of ONNX Runtime. Adapters implement it; no other part of the package handles files,
// addresses or bindings.

/** @import { InferenceSession, Tensor, TensorConstructor } from "onnxruntime-common" */

/** @typedef {InferenceSession.SessionOptions} SessionOptions */

/**
 * @typedef {object} Runtime
 * @property {string} provider  "cpu", "wasm" or "webgpu"
 * @property {TensorConstructor} Tensor
 * @property {boolean} bindsOutputs  whether outputs are written into given tensors
 * @property {boolean} keepsCacheOnDevice  whether caches stay on the device between two calls
 * @property {(file: string, options: SessionOptions) => Promise<InferenceSession>} open  a graph of the bundle
 * @property {() => Promise<void>} [turn]  handles the thread's waiting events, if computing blocks them
 */

export {};
