// The other seam: what the backend asks of a binding of ONNX Runtime. An adapter fills it in; nothing else of the
// package knows files, addresses or bindings.

/** @import { InferenceSession, Tensor, TensorConstructor } from "onnxruntime-common" */

/** @typedef {InferenceSession.SessionOptions} SessionOptions */

/**
 * @typedef {object} Runtime
 * @property {string} provider  what computes: "cpu", "wasm", "webgpu"
 * @property {TensorConstructor} Tensor
 * @property {boolean} bindsOutputs  whether a tensor given for an output is written into, where it lies
 * @property {boolean} keepsCacheOnDevice  whether caches stay on the device between two calls
 * @property {(file: string, options: SessionOptions) => Promise<InferenceSession>} open  a graph of the bundle
 * @property {() => Promise<void>} [turn]  lets the thread's other events through, where computing holds them up
 */

export {};
