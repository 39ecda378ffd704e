// Text to tokens and back, over a tokenizer.json.
import { Tokenizer as Library } from "@huggingface/tokenizers";
import { BundleError, reason } from "../errors.js";
import { Words } from "../drafts/copied_words.js";
import { BYTE_OF } from "../support/byte_alphabet.js";
import { checkText } from "../support/values.js";

/** @import { Part } from "./template.js" */

/** @typedef {{id: number, content: string, special?: boolean}} AddedToken */
/** @typedef {{type?: string, prepend_scheme?: string, decoders?: Decoder[]}} Decoder */
/** @typedef {{added_tokens?: AddedToken[], decoder?: Decoder | null}} Description  A tokenizer.json. */

const UTF8 = new TextEncoder();

export class Tokenizer {
  /** @type {Map<string, number>} literal of each special token -> id */
  specialIds;
  #description;
  #special; // cuts markup at its special tokens
  #plain; // recognises no special tokens
  /** @type {Library | null} */
  #whole = null;
  #pieceBytes;
  /** @type {Map<number, Uint8Array>} */
  #bytes = new Map();

  /** @param {Description} description */
  constructor(description) {
    this.#description = description;
    const added = description.added_tokens ?? [];
    this.specialIds = new Map(added.filter((token) => token.special).map(({ content, id }) => [content, id]));
    this.#special = anyOf([...this.specialIds.keys()]);
    this.#plain = open({ ...description, added_tokens: added.filter((token) => !token.special) });
    const decoder = description.decoder;
    const steps = new Map((decoder?.decoders ?? (decoder ? [decoder] : [])).map((step) => [step.type, step]));
    const isByteLevel = steps.has("ByteLevel");
    if (!isByteLevel && !steps.has("ByteFallback") && !steps.has("Metaspace")) {
      throw new BundleError(
        `tokenizer.json: decoder ${decoder?.type ?? "none"} is not supported (byte-level and byte-fallback are)`,
      );
    }
    this.#pieceBytes = isByteLevel ? byteLevel : byteFallback;
    const scheme = steps.get("Metaspace")?.prepend_scheme ?? "never";
    /** Whether the tokenizer adds a text's first space. */
    this.stripsFirstSpace = !isByteLevel && (steps.has("Strip") || scheme !== "never");
  }

  /** Encode a whole text: special tokens are recognised, the usual prefix is added. @param {string} text */
  encode(text) {
    this.#whole ??= open(this.#description);
    return encodeWith(this.#whole, checkText(text), true);
  }

  /**
   * Encode parts, of which only trusted ones may contain special tokens. Runs of text between special tokens are encoded
   * as one, across parts.
   * @param {Part[]} parts
   */
  encodeParts(parts) {
    /** @type {number[]} */
    const ids = [];
    let run = "";
    const flush = () => {
      if (run) ids.push(...encodeWith(this.#plain, run, false));
      run = "";
    };
    for (const [text, isTrusted] of parts) {
      for (const piece of isTrusted ? text.split(this.#special) : [text]) {
        const special = isTrusted ? this.specialIds.get(piece) : undefined;
        if (special === undefined) run += piece;
        else {
          flush();
          ids.push(special);
        }
      }
    }
    flush();
    return ids;
  }

  /** Decode to text without special tokens. @param {Iterable<number>} ids */
  decode(ids) {
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.bytes(ids));
    return this.stripsFirstSpace && text.startsWith(" ") ? text.slice(1) : text;
  }

  /** Return the bytes of tokens; none for special or unknown ones. @param {Iterable<number>} ids */
  bytes(ids) {
    return Uint8Array.from(Array.from(ids, (id) => [...this.#tokenBytes(id)]).flat());
  }

  /** What cuts prompts into words, for drafts that copy them. */
  words() {
    return new Words(
      (token) => this.#tokenBytes(token),
      (text) => this.encodeParts([[text, false]]),
    );
  }

  /** @param {number} id */
  #tokenBytes(id) {
    let found = this.#bytes.get(id);
    if (!found) {
      const piece = this.#plain.id_to_token(id);
      found = piece === undefined || this.specialIds.has(piece) ? new Uint8Array(0) : this.#pieceBytes(piece);
      this.#bytes.set(id, found);
    }
    return found;
  }
}

/** @param {Description} description */
function open(description) {
  try {
    return new Library(description, {});
  } catch (error) {
    throw new BundleError(`tokenizer.json: not usable (${reason(error)}): export the bundle again`, { cause: error });
  }
}

/** @param {Library} library @param {string} text @param {boolean} isWhole @returns {number[]} */
function encodeWith(library, text, isWhole) {
  return library.encode(text, { add_special_tokens: isWhole }).ids;
}

/** @param {string[]} texts */
function anyOf(texts) {
  const longestFirst = texts.sort((a, b) => b.length - a.length);
  const escaped = longestFirst.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return escaped.length ? new RegExp(`(${escaped.join("|")})`) : /(?!)/;
}

/** @param {string} piece */
function byteLevel(piece) {
  const bytes = Array.from(piece, (character) => BYTE_OF.get(character) ?? -1);
  return bytes.includes(-1) ? UTF8.encode(piece) : Uint8Array.from(bytes); // an added token is plain text
}

/** @param {string} piece */
function byteFallback(piece) {
  const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(piece);
  return byte ? Uint8Array.of(parseInt(byte[1], 16)) : UTF8.encode(piece.replaceAll("▁", " "));
}
