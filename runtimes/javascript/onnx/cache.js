// The KV cache of one graph, filled from the left; forgetting is moving `used` back.
//
//     in place    fused graphs say past and present with the new entries in it. Where the binding writes into memory
//                 that it is given, both are the same memory; elsewhere each present is the next call's past
//     placed      portable graphs return this call's entries alone; the host puts them behind the `used` ones
//
// A binding copies a whole present at every call, or hands a whole past over. That takes time with the size of the
// cache, so a cache of a size that is ours to choose begins small and grows in steps.
import { BundleError } from "../errors.js";

/** @import { Tensor } from "onnxruntime-common" */
/** @import { DType, GraphSpec, TensorSpec } from "../bundle/manifest.js" */
/** @import { Runtime } from "./runtime.js" */

export const STEP = 256; // slots

const ARRAYS = {
  float32: Float32Array,
  float16: /** @type {Uint16ArrayConstructor} */ (Reflect.get(globalThis, "Float16Array") ?? Uint16Array), // only kept
  int8: Int8Array,
  int32: Int32Array,
  int64: BigInt64Array,
};

/**
 * A tensor of zeros, or of `values`, of a type that the manifest names.
 * @param {Runtime} runtime @param {DType} dtype @param {readonly number[]} dims
 * @param {ArrayLike<number>} [values]
 * @returns {Tensor}
 */
export function tensor(runtime, dtype, dims, values) {
  const data = new ARRAYS[dtype](dims.reduce((a, b) => a * b, 1));
  if (values && data instanceof BigInt64Array) data.set(Array.from(values, BigInt));
  else if (values) /** @type {Float32Array} */ (data).set(values);
  return new runtime.Tensor(dtype, /** @type {any} */ (data), dims);
}

export class Cache {
  used = 0;
  /** @type {Record<string, Tensor>} past_key.N and past_value.N -> [1, K, slots, D] */
  past = {};
  #inputs;
  #isPlaced;
  #isFixed; // its size stands in the graph
  #slots = 0;

  /**
   * @param {Runtime} runtime
   * @param {GraphSpec} graph
   * @param {number} cacheSlots  most entries
   */
  constructor(runtime, graph, cacheSlots) {
    this.runtime = runtime;
    this.cacheSlots = cacheSlots;
    this.#inputs = graph.inputs.filter(({ name }) => name.startsWith("past_"));
    this.#isPlaced = graph.outputs.some(({ name }) => name.startsWith("new_"));
    if (!this.#inputs.length) throw new BundleError(`${graph.file} has no KV cache: export the bundle again`);
    this.#isFixed = this.#inputs.some(({ shape }) => /^\d+$/.test(shape[2]));
  }

  /**
   * Make room for this many more entries and return the graph's counters. Attention treats a call that appends all
   * entries as the first of a text and counts positions from 0. A call whose positions have gaps therefore names one
   * slot more, which is never read.
   * @param {number} count
   */
  async reserve(count, hasGaps = false) {
    const last = this.used + count - 1;
    const needed = last + 1 + (hasGaps && !this.used ? 1 : 0);
    if (needed > this.#slots) {
      const steps = Math.ceil(needed / STEP) * STEP;
      await this.#grow(this.#isFixed ? this.cacheSlots : Math.min(steps, this.cacheSlots));
    }
    return { last_slot: [last], total_slots: [needed], used: [this.used] };
  }

  /** Return the tensor that an output is written into; null: a new one. @param {string} output */
  place(output) {
    return this.runtime.bindsOutputs ? (this.past[output.replace("present_", "past_")] ?? null) : null;
  }

  /** Finish a call that appended entries. @param {Record<string, Tensor>} results @param {number} count */
  take(results, count) {
    for (const name of Object.keys(this.past)) {
      if (this.#isPlaced) copyEntries(results[name.replace("past_", "new_")], this.past[name], this.used);
      else if (!this.runtime.bindsOutputs) {
        const old = this.past[name];
        this.past[name] = results[name.replace("past_", "present_")];
        if (old.location === "gpu-buffer") old.dispose();
      }
    }
    this.used += count;
  }

  dispose() {
    for (const held of Object.values(this.past)) if (held.location === "gpu-buffer") held.dispose();
    this.past = {};
  }

  /** Grow the cache to this many entries and copy the old ones. @param {number} slots */
  async #grow(slots) {
    for (const { name, dtype, shape } of this.#inputs) {
      const dims = shape.map((size, axis) => (axis === 2 ? slots : Number(size)));
      const larger = tensor(this.runtime, dtype, dims);
      const old = this.past[name];
      if (old && this.used) {
        if (old.location !== "cpu") await old.getData(true); // copy to the host, free on the device
        copyEntries(old, larger, 0);
      }
      this.past[name] = larger;
    }
    this.#slots = slots;
  }
}

/** Copy the entries `from` [1, K, count, D] into `to` [1, K, slots, D], at `start`. @param {Tensor} from @param {Tensor} to @param {number} start */
function copyEntries(from, to, start) {
  const [, heads, count, width] = from.dims;
  const slots = to.dims[2];
  const source = /** @type {Int8Array} */ (from.data);
  const target = /** @type {Int8Array} */ (to.data);
  for (let head = 0; head < heads; head++) {
    target.set(source.subarray(head * count * width, (head + 1) * count * width), (head * slots + start) * width);
  }
}
