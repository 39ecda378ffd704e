// A model of one task in an app: get it, load it, ask, ask back if it is unsure, free it.
import { load } from "hamburger-edge/react-native";
import { fetchBundle } from "./bundle.js";

/** @import { Device, Options } from "./bundle.js" */

/**
 * Load the model at this address; the first time its bundle is fetched into `store`.
 * @param {string} address @param {string} store @param {Device} device @param {Options} [options]
 */
export async function openAssistant(address, store, device, options) {
  const folder = await fetchBundle(address, store, device, options);
  const read = async (/** @type {string} */ path) => device.read(path, 0, (await device.size(path)) ?? 0);
  return new Assistant(await load(folder, { read, cacheSlots: 1024 }));
}

/** @typedef {Awaited<ReturnType<typeof load>>} Model */

export class Assistant {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
  }

  /**
   * Answer a request; `onText` gets the pieces. Null: the model is unsure, so the app asks its user again.
   * @param {string} request @param {(text: string) => void} [onText] @param {AbortSignal} [signal]
   */
  async ask(request, onText, signal) {
    const minCertainty = this.model.info.certainty ? 0.8 : undefined; // not every model's certainty was measured
    const stream = this.model.stream(request, { maxTokens: 200, minCertainty, signal });
    for await (const { text } of stream) onText?.(text);
    return stream.unsure ? null : stream.text;
  }

  /** Free its memory: when the app goes to the background, or the system warns of little memory. */
  async close() {
    await this.model.close();
  }
}
