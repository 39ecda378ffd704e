// The manifest's own hash: of the rest of it as JSON with sorted keys, without blanks, in ASCII. Numbers stay as they
// are written: 1.0 is not 1.
import { BundleError } from "../errors.js";
import { hashOf } from "./files.js";
import { FILE_NAME, parseJson } from "./manifest.js";

const VALUES = /"(?:[^"\\]|\\.)*"|-?\d[-+.\deE]*/g; // strings, and numbers outside of them

/**
 * Compare a manifest with its hash.
 * @param {Uint8Array} content  as for `readManifest`
 * @param {string} place  of the bundle, for messages
 */
export async function checkManifest(content, place) {
  const text = new TextDecoder().decode(content);
  const marked = text.replace(VALUES, (part) => (part[0] === '"' ? `"s${part.slice(1)}` : `"n${part}"`));
  const { ssha256: said, ...facts } = parseJson(new TextEncoder().encode(marked), `${place}: ${FILE_NAME}`);
  if (said !== `s${await hashOf(new TextEncoder().encode(canonical(facts)))}`) {
    throw new BundleError(
      `${place}: ${FILE_NAME} was changed since it was written, its sha256 says: copy the bundle again`,
    );
  }
}

/**
 * @param {unknown} value  whose strings begin with "s", and whose numbers are strings that begin with "n"
 * @returns {string}
 */
function canonical(value) {
  if (typeof value === "string") return value[0] === "n" ? value.slice(1) : quoted(value.slice(1));
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return String(value);
  const pairs = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${pairs.map(([key, held]) => `${canonical(key)}:${canonical(held)}`).join(",")}}`;
}

/** @param {string} text */
function quoted(text) {
  const digits = (/** @type {string} */ unit) => unit.charCodeAt(0).toString(16).padStart(4, "0");
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, (unit) => `\\u${digits(unit)}`);
}
