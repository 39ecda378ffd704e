// The printable characters that stand for bytes in byte-level vocabularies; printable bytes stand for themselves.

/** @type {string[]} of each byte */
export const BYTES = [];
/** @type {Map<string, number>} */
export const BYTE_OF = new Map();

let next = 256;
for (let byte = 0; byte < 256; byte++) {
  const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  BYTES.push(String.fromCodePoint(isPrintable ? byte : next++));
  BYTE_OF.set(BYTES[byte], byte);
}
