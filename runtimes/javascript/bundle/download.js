// Downloads the files of a bundle, checks them, and keeps them so that the next load needs no network.
import { BundleError, FetchError, reason } from "../errors.js";
import { checkContent } from "./files.js";
import { FILE_NAME, filesToRun, readManifest } from "./manifest.js";
import { checkManifest } from "./manifest_hash.js";

/** @import { FileEntry, Manifest } from "./manifest.js" */

/**
 * @typedef {object} Progress
 * @property {string} file  the current one
 * @property {number} loaded  bytes of all files
 * @property {number} total
 * @property {boolean} isStored  whether this file was kept from an earlier load
 */

/**
 * @typedef {object} DownloadOptions
 * @property {boolean} isStored
 * @property {(manifest: Manifest, address: string) => void} [check]  throws for a bundle that the runtime cannot compute
 * @property {AbortSignal} [signal]
 * @property {HeadersInit} [headers]  of each request
 * @property {(progress: Progress) => void} [onProgress]
 */

const STORE = "hamburger-edge"; // of the Cache API

/**
 * Return the manifest of a bundle, and the contents of its files by name. With `isStored` the browser keeps files by
 * hash, if it has a store.
 * @param {string} address  of the folder
 * @param {DownloadOptions} options
 */
export async function download(address, { isStored, check, signal, headers, onProgress }) {
  const base = address.replace(/\/*$/, "/");
  const store = isStored && typeof caches !== "undefined" ? await caches.open(STORE) : null;
  const written = await readManifestFile(base, store, { signal, headers });
  const manifest = readManifest(written, address);
  await checkManifest(written, address);
  check?.(manifest, address);
  const entries = filesToRun(manifest);
  const total = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  let loaded = 0;
  /** @type {Map<string, Uint8Array>} */
  const contents = new Map();
  for (const entry of entries) {
    const key = `${base}${entry.path}?sha256=${entry.sha256}`;
    const found = await store?.match(key);
    // not in the browser's HTTP cache too
    const response = found ?? (await request(base + entry.path, { signal, headers, cache: store ? "no-store" : "default" }));
    const told = (/** @type {number} */ bytes) =>
      onProgress?.({ file: entry.path, loaded: (loaded += bytes), total, isStored: found !== undefined });
    const content = await readBody(response, entry, told);
    await checkContent(content, entry, address);
    if (store && !found) await keep(store, key, content, address);
    contents.set(entry.path, content);
  }
  return { manifest, contents };
}

/** Delete the kept files of all bundles. */
export async function clearStore() {
  if (typeof caches !== "undefined") await caches.delete(STORE);
}

/** Fetch the manifest; without a network return the kept one. @param {string} base @param {Cache | null} store @param {RequestInit} asking */
async function readManifestFile(base, store, asking) {
  const key = base + FILE_NAME;
  let response;
  try {
    response = await request(key, { ...asking, cache: "no-cache" });
  } catch (error) {
    response = await store?.match(key);
    if (!response || asking.signal?.aborted) throw error;
    return new Uint8Array(await response.arrayBuffer());
  }
  const content = new Uint8Array(await response.arrayBuffer());
  if (store) await keep(store, key, content, base);
  return content;
}

/** @param {string} address @param {RequestInit} options */
async function request(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (options.signal?.aborted) throw error; // the error of `fetch`
    throw new FetchError(`${address}: cannot be reached (${reason(error)}): check the network`, { cause: error });
  }
  if (!response.ok) {
    throw new FetchError(`${address}: the server says ${response.status}: check the bundle's address`);
  }
  return response;
}

/** Read the whole response into memory of its size. @param {Response} response @param {FileEntry} entry @param {(bytes: number) => void} told */
async function readBody(response, entry, told) {
  const content = new Uint8Array(entry.bytes);
  let filled = 0;
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (filled + value.length > content.length) {
      await reader.cancel();
      throw new BundleError(`${entry.path}: more than the ${entry.bytes} bytes that the manifest says: copy the bundle again`);
    }
    content.set(value, filled);
    filled += value.length;
    told(value.length);
  }
  return content.subarray(0, filled);
}

/** @param {Cache} store @param {string} key @param {Uint8Array} content @param {string} address */
async function keep(store, key, content, address) {
  try {
    await store.put(key, new Response(/** @type {Uint8Array<ArrayBuffer>} */ (content)));
  } catch (error) {
    const room = await navigator.storage?.estimate?.();
    const left = room ? `, ${megabytes((room.quota ?? 0) - (room.usage ?? 0))} are left` : "";
    throw new FetchError(
      `${address}: the browser has no room to keep ${megabytes(content.length)} more${left} (${reason(error)}): ` +
        "free some, or load it with store: false",
      { cause: error },
    );
  }
}

/** @param {number} bytes */
function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
