// One ONNX graph of a bundle and its KV cache.
import path from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-node";

const FIRST_SLOTS = 256; // a cache of any size begins with these and doubles up to its capacity, see `run`
const ARRAYS = {
  float32: Float32Array,
  float16: globalThis.Float16Array ?? Uint16Array, // only kept, never computed with here
  int8: Int8Array,
  int32: Int32Array,
  int64: BigInt64Array,
};

function arrayType(dtype) {
  if (!ARRAYS[dtype]) throw new Error(`the manifest has a tensor of type ${dtype}, which is not known here`);
  return ARRAYS[dtype];
}

/** A tensor of `values`, in the type that the manifest names. */
function tensor(dtype, values, dims) {
  const ArrayType = arrayType(dtype);
  if (values instanceof ArrayType) return new Tensor(dtype, values, dims);
  return new Tensor(dtype, ArrayType.from(values, dtype === "int64" ? BigInt : Number), dims);
}

function zeros(dtype, dims) {
  const ArrayType = arrayType(dtype);
  return new Tensor(dtype, new ArrayType(dims.reduce((a, b) => a * b)), dims);
}

/** Copies the entries `from` [1, K, count, D] into the cache tensor `to` [1, K, entries, D], at `start`. */
function copyEntries(from, to, start) {
  const [, heads, count, width] = from.dims;
  const entries = to.dims[2];
  for (let head = 0; head < heads; head++) {
    const ofHead = from.data.subarray(head * count * width, (head + 1) * count * width);
    to.data.set(ofHead, (head * entries + start) * width);
  }
}

export class Graph {
  used = 0; // entries of the cache that hold something
  cache = {}; // past_key.N and past_value.N -> tensor [1, K, entries, D]
  outputs = {}; // where each output goes; null: into a new tensor
  isClosed = false;

  static async open(folder, manifest, name, capacity, options) {
    const graph = new Graph();
    const entry = manifest.graphs.find((entry) => entry.name === name);
    if (!entry?.inputs || !entry.outputs) throw new Error(`manifest.json does not list what ${name} takes`);
    graph.inputs = entry.inputs;
    graph.outputNames = entry.outputs.map((output) => output.name);
    graph.capacity = capacity;
    graph.#allocate(Math.min(FIRST_SLOTS, capacity));
    graph.session = await InferenceSession.create(path.join(folder, entry.file), options);
    return graph;
  }

  /** A cache with so many entries where the size is ours to choose; what the old one holds is copied. */
  #allocate(slots) {
    for (const { name, dtype, shape } of this.inputs.filter(({ name }) => name.startsWith("past_"))) {
      const larger = zeros(dtype, shape.map((size) => (size === "capacity" ? slots : Number(size))));
      if (this.cache[name]) copyEntries(this.cache[name], larger, 0);
      this.cache[name] = larger;
      this.slots = shape.includes("capacity") ? slots : Infinity; // of a fixed size: nothing to enlarge
    }
    for (const name of this.outputNames) { // fused: present_* is the very memory of past_*
      this.outputs[name] = this.cache[name.replace("present_", "past_")] ?? null;
    }
  }

  /** Runs the graph on `values`, name -> [values, dims], and appends `count` entries to its cache. */
  async run(values, count = 0) {
    if (this.isClosed) throw new Error("the model is closed");
    // The graph writes into our arrays, but the binding then copies every output, a whole present_* included,
    // into a tensor that nobody reads. That costs time with the size of the cache, so it is kept small.
    const needed = this.used + count;
    if (needed > this.slots) this.#allocate(Math.min(this.capacity, Math.max(needed, 2 * this.slots)));
    const counters = { last_slot: needed - 1, total_slots: needed, used: this.used };
    const given = { ...values };
    for (const name in counters) given[name] = [[counters[name]], [1]];
    const feeds = { ...this.cache };
    for (const { name, dtype } of this.inputs) { // of what could be given, what this graph takes
      if (name in given) feeds[name] = tensor(dtype, ...given[name]);
    }
    this.running = this.session.run(feeds, this.outputs);
    const results = await this.running;
    for (const name of this.outputNames) { // portable: the new entries are ours to place
      if (!name.startsWith("new_")) continue;
      copyEntries(results[name], this.cache[name.replace("new_", "past_")], this.used);
    }
    this.used = needed;
    return results;
  }

  async close() {
    this.isClosed = true;
    await this.running?.catch(() => {}); // a step under way ends first
    await this.session.release();
  }
}
