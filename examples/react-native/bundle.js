// Fetches a bundle into the app's storage, in pieces: a broken download continues after its last piece.
//
//     STORE/manifest.json        of the newest whole bundle
//     STORE/<hash>/...           its files; a file's name ends with .part until its hash was compared
import { BundleError, FetchError, filesToRun, readManifest } from "hamburger-edge";

const PIECE = 4 << 20; // bytes of one request, and of one read: never a whole file of weights

/** @typedef {NonNullable<ReturnType<typeof readManifest>>} Manifest */
/** @typedef {Manifest["files"][number]} FileEntry */

/**
 * @typedef {object} Device  The app's libraries for files and hashes; `device.js` implements it with Expo's.
 * @property {(path: string) => Promise<number | null>} size  bytes of a file; null: there is none
 * @property {(path: string, start: number, length: number) => Promise<Uint8Array>} read
 * @property {(path: string, bytes: Uint8Array) => Promise<void>} append  also makes the file and its folder
 * @property {(path: string, to: string) => Promise<void>} move
 * @property {(path: string) => Promise<void>} remove  a file or a folder; nothing if there is none
 * @property {() => {update: (bytes: Uint8Array) => void, digest: () => string}} sha256  in hexadecimal
 * @property {(address: string, options: RequestInit) => Promise<Response>} fetch
 */

/** @typedef {{onProgress?: (loaded: number, total: number) => void, signal?: AbortSignal}} Options */

/**
 * Return the folder of the bundle at this address, after fetching what the device lacks of it. Without a network it is
 * the bundle of the last time.
 * @param {string} address  of the bundle's folder on a server that answers range requests
 * @param {string} store  a folder that belongs to this bundle
 * @param {Device} device @param {Options} [options]
 */
export async function fetchBundle(address, store, device, { onProgress, signal } = {}) {
  const stored = await readStored(store, device);
  let content;
  try {
    content = await request(`${address}/manifest.json`, device, { signal });
  } catch (error) {
    if (!stored || signal?.aborted) throw error;
    return folderOf(store, stored);
  }
  const manifest = readManifest(content, address);
  const folder = folderOf(store, manifest);
  const entries = filesToRun(manifest);
  const total = entries.reduce((sum, { bytes }) => sum + bytes, 0);
  let loaded = 0;
  for (const entry of entries) {
    await fetchFile(address, folder, entry, device, signal, (bytes) => onProgress?.(loaded + bytes, total));
    loaded += entry.bytes;
  }
  await write(`${folder}/manifest.json`, content, device);
  await write(`${store}/manifest.json`, content, device); // last: the bundle is whole
  if (stored && folderOf(store, stored) !== folder) await device.remove(folderOf(store, stored));
  return folder;
}

/** @param {string} store @param {Manifest} manifest  whose own hash names the folder */
function folderOf(store, manifest) {
  return `${store}/${/** @type {Manifest & {sha256: string}} */ (manifest).sha256.slice(0, 16)}`;
}

/** @param {string} store @param {Device} device */
async function readStored(store, device) {
  const path = `${store}/manifest.json`;
  const size = await device.size(path);
  return size === null ? null : readManifest(await device.read(path, 0, size), store);
}

/** @param {string} path @param {Uint8Array} content @param {Device} device */
async function write(path, content, device) {
  await device.remove(`${path}.part`);
  await device.append(`${path}.part`, content);
  await device.remove(path);
  await device.move(`${path}.part`, path);
}

/**
 * @param {string} address @param {string} folder @param {FileEntry} entry @param {Device} device
 * @param {AbortSignal | undefined} signal @param {(bytes: number) => void} report
 */
async function fetchFile(address, folder, entry, device, signal, report) {
  const path = `${folder}/${entry.path}`;
  if ((await device.size(path)) === entry.bytes) return report(entry.bytes);
  const part = `${path}.part`;
  let size = (await device.size(part)) ?? 0;
  while (size < entry.bytes) {
    const end = Math.min(size + PIECE, entry.bytes);
    const headers = { Range: `bytes=${size}-${end - 1}` };
    const piece = await request(`${address}/${entry.path}`, device, { headers, signal });
    if (piece.length !== end - size) {
      throw new FetchError(
        `${address}/${entry.path}: ${piece.length} bytes instead of ${end - size}: use a server that answers range requests`,
      );
    }
    await device.append(part, piece);
    report((size = end));
  }
  if ((await hashOf(part, entry.bytes, device)) !== entry.sha256) {
    await device.remove(part);
    throw new BundleError(`${address}/${entry.path}: its content differs from the manifest's sha256: fetch it again`);
  }
  await device.move(part, path);
}

/** @param {string} path @param {number} size @param {Device} device */
async function hashOf(path, size, device) {
  const hash = device.sha256();
  for (let start = 0; start < size; start += PIECE) {
    hash.update(await device.read(path, start, Math.min(PIECE, size - start)));
  }
  return hash.digest();
}

/** @param {string} address @param {Device} device @param {RequestInit} options */
async function request(address, device, options) {
  let response;
  try {
    response = await device.fetch(address, options);
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new FetchError(`${address}: the connection broke (${error}): start again, it goes on from there`, { cause: error });
  }
  throw new FetchError(`${address}: the server sends status ${response.status}: check the bundle's address`);
}
