// Files of bundles in the browser's Cache API. Each is kept in pieces, so that a download that broke goes on where it
// ended. The key of a piece holds the hash of its file: a changed file is another one.
import { StorageFullError, reason } from "../errors.js";

/** @import { FileEntry } from "./manifest.js" */

const NAME = "hamburger-edge"; // in the Cache API
export const PIECE = 1 << 20; // bytes; a broken download loses less than one

/** The kept files of one bundle. */
export class Store {
  #cache;
  #base;

  /** @param {Cache} cache @param {string} base  address of the bundle's folder, which ends with a slash */
  constructor(cache, base) {
    this.#cache = cache;
    this.#base = base;
  }

  /** Open the store of a bundle; null where there is none, as on a page without HTTPS. @param {string} base */
  static async open(base) {
    return typeof caches === "undefined" ? null : new Store(await caches.open(NAME), base);
  }

  /** Read the kept beginning of a file into `content`, and return its length. @param {FileEntry} entry @param {Uint8Array} content */
  async read(entry, content) {
    for (const [start, end] of pieces(entry)) {
      const found = await this.#cache.match(this.#key(entry, start));
      const piece = found && new Uint8Array(await found.arrayBuffer());
      if (piece?.length !== end - start) return start;
      content.set(piece, start);
    }
    return entry.bytes;
  }

  /**
   * Keep the pieces of a file that are complete after `filled` bytes, from `kept` on. Return the end of the last one.
   * @param {FileEntry} entry @param {Uint8Array} content @param {number} kept @param {number} filled
   */
  async keep(entry, content, kept, filled) {
    if (filled - kept < PIECE && filled < entry.bytes) return kept;
    for (const [start, end] of pieces(entry)) {
      if (start < kept || end > filled) continue;
      await this.#put(this.#key(entry, start), content.subarray(start, end));
      kept = end;
    }
    return kept;
  }

  /** Delete the pieces of a file. @param {FileEntry} entry */
  async forget(entry) {
    for (const [start] of pieces(entry)) await this.#cache.delete(this.#key(entry, start));
  }

  /** Delete what is kept of the bundle, but for these files: of its earlier versions. @param {readonly FileEntry[]} entries */
  async tidy(entries) {
    const current = new Set(entries.flatMap((entry) => pieces(entry).map(([start]) => this.#key(entry, start))));
    for (const { url } of await this.#cache.keys()) {
      if (url.startsWith(this.#base) && url.includes("?sha256=") && !current.has(url)) await this.#cache.delete(url);
    }
  }

  /** Return a small file that is kept whole, without a hash. @param {string} address */
  async readWhole(address) {
    const found = await this.#cache.match(address);
    return found ? new Uint8Array(await found.arrayBuffer()) : null;
  }

  /** @param {string} address @param {Uint8Array} content */
  async keepWhole(address, content) {
    await this.#put(address, content);
  }

  /** @param {string} key @param {Uint8Array} content */
  async #put(key, content) {
    try {
      await this.#cache.put(key, new Response(/** @type {Uint8Array<ArrayBuffer>} */ (content)));
    } catch (error) {
      await this.tidy([]); // without the rest, what is kept only takes room
      throw new StorageFullError(
        `${this.#base}: the browser has no room to keep its files (${reason(error)}): free some, or load it with store: false`,
        { cause: error },
      );
    }
  }

  /** @param {FileEntry} entry @param {number} start */
  #key({ path, sha256 }, start) {
    return new URL(`${this.#base}${path}?sha256=${sha256}&from=${start}`).href;
  }
}

/** Delete the kept files of all bundles. */
export async function clearStore() {
  if (typeof caches !== "undefined") await caches.delete(NAME);
}

/** Begin and end of each piece of a file. @param {FileEntry} entry @returns {[start: number, end: number][]} */
function pieces({ bytes }) {
  return Array.from({ length: Math.ceil(bytes / PIECE) }, (_, i) => [i * PIECE, Math.min((i + 1) * PIECE, bytes)]);
}

/** @param {number} bytes */
export function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
