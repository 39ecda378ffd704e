// Checks of a bundle's files.
import { BundleError } from "../errors.js";

/** @import { FileEntry } from "./manifest.js" */

/**
 * Compare a file's content with the manifest.
 * @param {Uint8Array} content
 * @param {FileEntry} entry
 * @param {string} place  of the bundle
 */
export async function checkContent(content, entry, place) {
  checkSize(content.length, entry, place);
  if ((await hashOf(content)) !== entry.sha256) {
    throw new BundleError(`${place}/${entry.path}: its content differs from the manifest's sha256: copy the bundle again`);
  }
}

/** SHA-256, in hexadecimal. @param {Uint8Array} content */
export async function hashOf(content) {
  const digest = await crypto.subtle.digest("SHA-256", /** @type {Uint8Array<ArrayBuffer>} */ (content));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {number} bytes @param {FileEntry} entry @param {string} place */
export function checkSize(bytes, entry, place) {
  if (bytes !== entry.bytes) {
    throw new BundleError(
      `${place}/${entry.path}: ${bytes} bytes, but the manifest says ${entry.bytes}: truncated or changed; copy the bundle again`,
    );
  }
}
