// Text to tokens and back, and the markup of a conversation: what the contract's paragraph *Text* says.
import { Tokenizer } from "@huggingface/tokenizers";

/** GPT-2's byte table, backwards: the character that a byte-level vocabulary writes -> the byte. */
function byteTable() {
  const table = new Map();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const itself = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    table.set(String.fromCodePoint(itself ? byte : next++), byte);
  }
  return table;
}

export class Text {
  #specials; // literal of each special token -> id
  #added; // id of each added token that is not special -> its literal
  #eosIds; // tokens that end an answer
  #hidden; // ids that have no text
  #splitter; // cuts markup at its special tokens, or null if there are none
  #plain; // a tokenizer that recognises no special token
  #bytes; // GPT-2's byte table, or null for a vocabulary with byte fallback
  #dropsFirstSpace;
  #encoder = new TextEncoder();

  constructor(description, template, eosIds) {
    const special = (description.added_tokens ?? []).filter((token) => token.special);
    const added = (description.added_tokens ?? []).filter((token) => !token.special);
    this.#specials = new Map(special.map((token) => [token.content, token.id]));
    this.#added = new Map(added.map((token) => [token.id, token.content]));
    this.#eosIds = eosIds;
    this.#hidden = new Set([...this.#specials.values(), ...eosIds]);
    const longestFirst = [...this.#specials.keys()].sort((a, b) => b.length - a.length);
    const escaped = longestFirst.map((literal) => literal.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.#splitter = escaped.length ? new RegExp(`(${escaped.join("|")})`) : null;
    this.#plain = new Tokenizer({ ...description, added_tokens: added }, {});
    const decoders = [description.decoder ?? {}].flatMap((decoder) => decoder.decoders ?? [decoder]);
    this.#bytes = decoders.some(({ type }) => type === "ByteLevel") ? byteTable() : null;
    this.#dropsFirstSpace = decoders.some(({ type, prepend_scheme: scheme }) =>
      type === "Strip" || (type === "Metaspace" && scheme !== "never"));
    this.template = template ?? {}; // without one every string is empty: texts stand as they are
  }

  /** Token ids of `parts`, each [string, whether it is markup]; special tokens are found in markup only. */
  encode(parts) {
    const ids = [];
    let run = ""; // text since the last special token: encoded as one
    const flush = () => {
      if (run) ids.push(...this.#plain.encode(run, { add_special_tokens: false }).ids);
      run = "";
    };
    for (const [string, isMarkup] of parts) {
      for (const piece of isMarkup && this.#splitter ? string.split(this.#splitter) : [string]) {
        if (isMarkup && this.#specials.has(piece)) {
          flush();
          ids.push(this.#specials.get(piece));
        } else {
          run += piece;
        }
      }
    }
    flush();
    return ids;
  }

  /** Tokens of `messages` from index `known` on; `last` is the newest token of the answer before them. */
  conversation(messages, known = 0, last = null) {
    const t = this.template;
    const markup = (name) => [t[name] ?? "", true];
    const own = (text) => [t.trim ? text.trim() : text, false];
    const given = messages[0].role === "system" ? messages[0].content : t.default_system;
    const system = given ? [markup("before_system"), own(given), markup("after_system")] : [];
    const parts = known ? [markup("after_answer")] : [markup("prefix"), ...(t.system_in_user ? [] : system)];
    let isFirstUser = !known;
    for (const [i, { role, content }] of messages.slice(known).entries()) {
      if (role === "user") {
        parts.push(markup("before_user"), ...(isFirstUser && t.system_in_user ? system : []), own(content));
        parts.push(markup("after_user"), markup("before_answer"));
        isFirstUser = false;
      } else if (role === "assistant") {
        parts.push([content, false], markup("after_answer"));
      } else if (role !== "system" || known + i > 0) {
        throw new Error(`messages: no place for the role ${role} at ${known + i}`);
      }
    }
    const ids = this.encode(parts);
    const isThere = known > 0 && this.#eosIds.includes(last) && ids[0] === last; // the answer ended with it
    return isThere ? ids.slice(1) : ids;
  }

  /** The bytes that one token stands for; a character may need those of several tokens. */
  bytes(id) {
    if (this.#hidden.has(id)) return [];
    if (this.#added.has(id)) return this.#encoder.encode(this.#added.get(id));
    const written = this.#plain.id_to_token(id) ?? "";
    if (this.#bytes) {
      return [...written].flatMap((char) => this.#bytes.get(char) ?? [...this.#encoder.encode(char)]);
    }
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(written);
    return byte ? [parseInt(byte[1], 16)] : this.#encoder.encode(written.replaceAll("▁", " "));
  }

  /** A function (tokens, isLast) -> text; the bytes of an unfinished character wait for the next call. */
  detokenizer() {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let atStart = this.#dropsFirstSpace;
    return (tokens, isLast) => {
      const bytes = Uint8Array.from(tokens.flatMap((id) => [...this.bytes(id)]));
      let text = decoder.decode(bytes, { stream: !isLast });
      if (atStart && text) {
        text = text.replace(/^ /, "");
        atStart = false;
      }
      return text;
    };
  }
}
