// One ONNX graph of a bundle, with its inputs by name and its cache.
import { BundleError, RuntimeFailureError, reason } from "../errors.js";
import { Cache, tensor } from "./cache.js";

/** @import { InferenceSession, Tensor } from "onnxruntime-common" */
/** @import { GraphSpec, Manifest } from "../bundle/manifest.js" */
/** @import { Runtime, SessionOptions } from "./runtime.js" */

/** @typedef {Record<string, [values: ArrayLike<number>, dims: readonly number[]]>} Values */

export class Graph {
  /** @type {Promise<unknown> | null} */
  #running = null;

  /**
   * @param {Runtime} runtime @param {GraphSpec} spec @param {InferenceSession} session
   * @param {number} cacheSlots  entries of its cache; 0: it has none
   */
  constructor(runtime, spec, session, cacheSlots) {
    this.runtime = runtime;
    this.spec = spec;
    this.session = session;
    this.cache = cacheSlots ? new Cache(runtime, spec, cacheSlots) : null;
  }

  /**
   * @param {Runtime} runtime @param {Manifest} manifest @param {string} name
   * @param {number} cacheSlots @param {SessionOptions} options
   */
  static async open(runtime, manifest, name, cacheSlots, options) {
    const spec = /** @type {GraphSpec} */ (manifest.graphs.find((graph) => graph.name === name));
    let session;
    try {
      const outputs = spec.outputs.filter((output) => output.name.startsWith("present_"));
      const onDevice = runtime.keepsCacheOnDevice
        ? { preferredOutputLocation: Object.fromEntries(outputs.map((output) => [output.name, "gpu-buffer"])) }
        : {};
      session = await runtime.open(spec.file, /** @type {SessionOptions} */ ({ ...options, ...onDevice }));
    } catch (error) {
      throw new BundleError(`${spec.file}: ${reason(error)}: check the bundle, or export it again`, { cause: error });
    }
    for (const [kind, declared, found] of /** @type {const} */ ([
      ["input", spec.inputs, session.inputNames],
      ["output", spec.outputs, session.outputNames],
    ])) {
      const odd = declared.find((given, i) => found[i] !== given.name);
      if (odd || found.length !== declared.length) {
        throw new BundleError(`${spec.file}: its ${kind}s differ from the manifest's: export the bundle again`);
      }
    }
    return new Graph(runtime, spec, session, cacheSlots);
  }

  /**
   * Run the graph on those `values` that are its inputs, and append `count` entries to its cache.
   * @param {Values} values
   * @returns {Promise<Record<string, Tensor>>}
   */
  async run(values, count = 0) {
    const { cache } = this;
    /** @type {Values} */
    const given = { ...values };
    if (cache) {
      const positions = given.positions?.[0];
      const hasGaps = positions !== undefined && Number(positions[count - 1]) !== cache.used + count - 1;
      for (const [name, counter] of Object.entries(await cache.reserve(count, hasGaps))) given[name] = [counter, [1]];
    }
    /** @type {Record<string, Tensor>} */
    const feeds = { ...cache?.past };
    for (const { name, dtype } of this.spec.inputs) {
      if (name in given) feeds[name] = tensor(this.runtime, dtype, given[name][1], given[name][0]);
    }
    const outputs = Object.fromEntries(this.spec.outputs.map(({ name }) => [name, cache?.place(name) ?? null]));
    try {
      const running = this.session.run(feeds, outputs);
      this.#running = running;
      const results = await running;
      cache?.take(results, count);
      return results;
    } catch (error) {
      throw new RuntimeFailureError(
        `ONNX Runtime could not run ${this.spec.file}: ${reason(error)}: close other programs, or load the model ` +
          "with a smaller cacheSlots",
        { cause: error },
      );
    }
  }

  async close() {
    await this.#running?.catch(() => {}); // a running step ends first
    this.cache?.dispose();
    await this.session.release();
  }
}
