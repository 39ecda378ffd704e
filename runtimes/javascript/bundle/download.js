// Downloads the files of a bundle, checks them, and keeps them so that the next load needs no network. A download that
// broke goes on where it ended.
import { BundleError, FetchError, reason } from "../errors.js";
import { wayToBundle } from "./built_in.js";
import { checkContent } from "./files.js";
import { FILE_NAME, filesToRun, readManifest } from "./manifest.js";
import { checkManifest } from "./manifest_hash.js";
import { Store, megabytes } from "./store.js";

/** @import { FileEntry, Manifest } from "./manifest.js" */

/**
 * @typedef {object} Progress
 * @property {string} file  the current one
 * @property {number} loaded  bytes of all files
 * @property {number} total
 * @property {boolean} isStored  whether an earlier load kept the bytes that were just read
 */

/**
 * @typedef {object} DownloadOptions
 * @property {boolean} isStored
 * @property {(manifest: Manifest, address: string) => void} [check]  throws for a bundle that the runtime cannot compute
 * @property {AbortSignal} [signal]
 * @property {HeadersInit} [headers]  of each request
 * @property {(progress: Progress) => void} [onProgress]
 */

/**
 * Return the manifest of a bundle, and the contents of its files by name. With `isStored` the browser keeps files by
 * hash, if it has a store; what an earlier load kept of them is not fetched again.
 * @param {string} address  of the folder
 * @param {DownloadOptions} options
 */
export async function download(address, { isStored, check, signal, headers, onProgress }) {
  const base = new URL(address.replace(/\/*$/, "/"), globalThis.location?.href).href;
  const store = isStored ? await Store.open(base) : null;
  const way = wayToBundle(address, "check the bundle's address");
  const written = await readManifestFile(base, way, store, { signal, headers });
  const manifest = readManifest(written, address);
  await checkManifest(written, address);
  check?.(manifest, address);
  const entries = filesToRun(manifest);
  const total = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  let loaded = 0;
  /** @type {Map<string, Uint8Array>} */
  const contents = new Map();
  for (const entry of entries) {
    /** @param {number} bytes @param {boolean} isStored */
    const told = (bytes, isStored) => onProgress?.({ file: entry.path, loaded: (loaded += bytes), total, isStored });
    const content = await readFile(base + entry.path, entry, store, { signal, headers }, told);
    try {
      await checkContent(content, entry, address);
    } catch (error) {
      await store?.forget(entry);
      throw error;
    }
    contents.set(entry.path, content);
  }
  await store?.tidy(entries);
  return { manifest, contents };
}

/**
 * Fetch the manifest; without a network return the kept one.
 * @param {string} base @param {string} way  what to do if the server has none @param {Store | null} store @param {RequestInit} asking
 */
async function readManifestFile(base, way, store, asking) {
  const address = base + FILE_NAME;
  let response;
  try {
    response = await request(address, { ...asking, cache: "no-cache" }, way);
  } catch (error) {
    const kept = await store?.readWhole(address);
    if (!kept || asking.signal?.aborted) throw error;
    return kept;
  }
  const content = new Uint8Array(await response.arrayBuffer());
  if (content[0] === "<".charCodeAt(0)) { // servers of one-page apps answer every address with their page
    throw new FetchError(`${address}: the server sends a page instead: ${way}`);
  }
  await store?.keepWhole(address, content);
  return content;
}

/**
 * Return a file: what is kept of it, and the rest from the server. It keeps each piece that arrives.
 * @param {string} address @param {FileEntry} entry @param {Store | null} store @param {RequestInit} asking
 * @param {(bytes: number, isStored: boolean) => void} told
 */
async function readFile(address, entry, store, asking, told) {
  const content = new Uint8Array(entry.bytes);
  let filled = (await store?.read(entry, content)) ?? 0;
  let kept = filled;
  if (filled) told(filled, true);
  if (filled === entry.bytes) return content;
  for await (const value of bodyFrom(filled, address, entry, store, asking)) {
    if (filled + value.length > content.length) {
      throw new BundleError(`${entry.path}: more than the ${entry.bytes} bytes that the manifest says: copy the bundle again`);
    }
    content.set(value, filled);
    filled += value.length;
    told(value.length, false);
    if (store) kept = await store.keep(entry, content, kept, filled);
  }
  return content.subarray(0, filled);
}

/**
 * Fetch a file from a byte on. A server that knows no ranges sends all of it.
 * @param {number} start @param {string} address @param {FileEntry} entry @param {Store | null} store @param {RequestInit} asking
 */
async function* bodyFrom(start, address, entry, store, { headers: given, signal }) {
  const headers = new Headers(given);
  if (start) headers.set("Range", `bytes=${start}-`);
  // not in the browser's HTTP cache too
  const response = await request(address, { headers, signal, cache: store ? "no-store" : "default" });
  const range = response.headers.get("Content-Range"); // null also where another origin does not show it
  if (response.status === 206 && range !== null && !range.startsWith(`bytes ${start}-`)) {
    throw new FetchError(`${address}: asked for the bytes from ${start} on, the server sends ${range}: load it with store: false`);
  }
  let skipped = response.status === 206 ? 0 : start;
  let position = start - skipped;
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (signal?.aborted) throw error;
        const [arrived, whole] = [megabytes(position), megabytes(entry.bytes)];
        const rest = store ? "load it again, it goes on from there" : "load it again";
        throw new FetchError(`${address}: the connection broke after ${arrived} of ${whole} (${reason(error)}): ${rest}`, {
          cause: error,
        });
      });
      if (done) return;
      position += value.length;
      const known = Math.min(skipped, value.length);
      skipped -= known;
      if (known < value.length) yield value.subarray(known);
    }
  } finally {
    await reader.cancel().catch(() => {}); // where its reader stops early
  }
}

/** @param {string} address @param {RequestInit} options @param {string} [way]  what to do if the server has no such file */
async function request(address, options, way = "check the bundle's address") {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (options.signal?.aborted) throw error; // the error of `fetch`
    throw new FetchError(`${address}: cannot be reached (${reason(error)}): check the network`, { cause: error });
  }
  if (!response.ok) {
    throw new FetchError(`${address}: the server says ${response.status}: ${way}`);
  }
  return response;
}
