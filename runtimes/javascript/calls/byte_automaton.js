// A finite automaton over bytes, as in hamburger_edge/calls/byte_automaton.py. State 0 is dead.

/** @import { Vocabulary } from "../structured/vocabulary.js" */

const NEVER = 1 << 30;
const TAIL = [0x80, 0xbf];
const SEQUENCES = [ // lead bytes of UTF-8 with the ranges of the bytes that follow
  [[0xc2, 0xdf], TAIL], [[0xe0, 0xe0], [0xa0, 0xbf], TAIL], [[0xe1, 0xec], TAIL, TAIL], [[0xed, 0xed], [0x80, 0x9f], TAIL],
  [[0xee, 0xef], TAIL, TAIL], [[0xf0, 0xf0], [0x90, 0xbf], TAIL, TAIL], [[0xf1, 0xf3], TAIL, TAIL, TAIL],
  [[0xf4, 0xf4], [0x80, 0x8f], TAIL, TAIL],
];

/** Each method adds a part after a node and returns the part's end. */
export class Builder {
  /** @type {[low: number, high: number, next: number][][]} of each node */
  edges = [];
  /** @type {number[][]} of each node: nodes that it reaches without a byte */
  skips = [];
  /** @type {Map<number, string>} nodes of a text that copies the prompt -> marks that may end it */
  copying = new Map();

  node() {
    this.edges.push([]);
    this.skips.push([]);
    return this.edges.length - 1;
  }

  /** @param {number} start @param {number} end */
  skip(start, end) {
    this.skips[start].push(end);
  }

  /** @param {number} start @param {number} low @param {number} high @param {number} [end] */
  byte(start, low, high, end = this.node()) {
    this.edges[start].push([low, high, end]);
    return end;
  }

  /** @param {number} start @param {string} text */
  literal(start, text) {
    return new TextEncoder().encode(text).reduce((node, byte) => this.byte(node, byte, byte), start);
  }

  /** @param {readonly number[]} ends */
  either(ends) {
    const joined = this.node();
    for (const end of ends) this.skip(end, joined);
    return joined;
  }

  /**
   * Any text without control characters. The characters `first` are excluded at the beginning alone; `copied` are the marks
   * that may end a text that copies the prompt.
   * @param {number} start @param {string} excluded @param {string} escapes @param {string} first @param {string | null} copied
   */
  text(start, excluded, escapes, first, copied) {
    const loop = this.node();
    const begin = first ? this.node() : loop;
    this.skip(start, begin);
    this.#character(loop, loop, excluded, escapes);
    if (first) this.#character(begin, loop, excluded + first, escapes);
    if (copied !== null) for (let node = loop; node < this.edges.length; node++) this.copying.set(node, copied);
    return first ? this.either([begin, loop]) : loop;
  }

  /** @param {number} start @param {number} end @param {string} excluded @param {string} escapes */
  #character(start, end, excluded, escapes) {
    for (let byte = 0x20; byte < 0x7f; byte++) if (!excluded.includes(String.fromCharCode(byte))) this.byte(start, byte, byte, end);
    for (const sequence of SEQUENCES) {
      let node = start;
      for (const [low, high] of sequence.slice(0, -1)) node = this.byte(node, low, high);
      this.byte(node, sequence[sequence.length - 1][0], sequence[sequence.length - 1][1], end);
    }
    const backslash = this.byte(start, 0x5c, 0x5c);
    for (const letter of escapes) this.byte(backslash, letter.charCodeAt(0), letter.charCodeAt(0), end);
  }

  /** @param {number} start @param {number} count */
  digits(start, count) {
    for (let index = 0; index < count; index++) start = this.byte(start, 0x30, 0x39);
    return start;
  }

  /** The whole numbers from `low` to `high`, at least 0. @param {number} start @param {number} low @param {number} high */
  between(start, low, high) {
    const ends = [];
    for (let length = String(low).length; length <= String(high).length; length++) {
      const first = length > 1 ? Math.max(low, 10 ** (length - 1)) : low;
      ends.push(this.#sameLength(start, String(first), length === String(high).length ? String(high) : "9".repeat(length)));
    }
    return this.either(ends);
  }

  /** @param {number} start @param {string} low @param {string} high @returns {number} */
  #sameLength(start, low, high) {
    if (!low) return start;
    if (/^0+$/.test(low) && /^9+$/.test(high)) return this.digits(start, low.length);
    const [rest, first, last] = [low.length - 1, low.charCodeAt(0), high.charCodeAt(0)];
    if (first === last) return this.#sameLength(this.literal(start, low[0]), low.slice(1), high.slice(1));
    const ends = [
      this.#sameLength(this.literal(start, low[0]), low.slice(1), "9".repeat(rest)),
      this.#sameLength(this.literal(start, high[0]), "0".repeat(rest), high.slice(1)),
    ];
    if (last - first > 1) ends.push(this.digits(this.byte(start, first + 1, last - 1), rest));
    return this.either(ends);
  }
}

/** The deterministic states, computed on first use. */
export class States {
  #edges;
  #skips;
  #copying;
  #distances;
  /** @type {Map<string, number>} sorted nodes -> state */
  #numbers = new Map([["", 0]]);
  /** @type {number[][]} */
  #nodes = [[]];
  /** @type {(Int32Array | null)[]} */
  #rows = [new Int32Array(256)];
  /** @type {number[]} bytes of the shortest text that completes the answer from each state */
  distance = [NEVER];
  /** @type {(string | null)[]} of each state: the marks that may end the text that copies the prompt; null: outside of one */
  marks = [null];

  /** @param {Builder} builder @param {number} start @param {number} end */
  constructor({ edges, skips, copying }, start, end) {
    this.#copying = copying;
    this.#edges = edges;
    this.#skips = skips;
    this.#distances = distances(edges, skips, end);
    this.longestDistance = this.#distances.reduce((most, one) => (one < NEVER ? Math.max(most, one) : most), 0);
    this.start = this.#number(new Set([start]));
  }

  /** @param {number} state */
  isComplete(state) {
    return this.distance[state] === 0;
  }

  /** The state after each byte. @param {number} state @returns {Int32Array} */
  row(state) {
    const known = this.#rows[state];
    if (known) return known;
    /** @type {Set<number>[]} */
    const targets = Array.from({ length: 256 }, () => new Set());
    for (const node of this.#nodes[state]) {
      for (const [low, high, target] of this.#edges[node]) for (let byte = low; byte <= high; byte++) targets[byte].add(target);
    }
    const row = Int32Array.from(targets, (nodes) => (nodes.size ? this.#number(nodes) : 0));
    this.#rows[state] = row;
    return row;
  }

  /** @param {number} state @param {Iterable<number>} bytes */
  follow(state, bytes) {
    for (const byte of bytes) {
      state = this.row(state)[byte];
      if (!state) return 0;
    }
    return state;
  }

  /** @param {Set<number>} nodes */
  #number(nodes) {
    const waiting = [...nodes];
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      for (const next of this.#skips[node]) {
        if (nodes.has(next)) continue;
        nodes.add(next);
        waiting.push(next);
      }
    }
    const sorted = [...nodes].sort((a, b) => a - b);
    const key = sorted.join();
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    this.#numbers.set(key, this.#nodes.length);
    this.#nodes.push(sorted);
    this.#rows.push(null);
    const node = sorted.find((one) => this.#copying.has(one));
    this.marks.push(node === undefined ? null : /** @type {string} */ (this.#copying.get(node)));
    this.distance.push(sorted.reduce((least, node) => Math.min(least, this.#distances[node]), NEVER));
    return this.#nodes.length - 1;
  }
}

/** @param {Builder["edges"]} edges @param {number[][]} skips @param {number} end */
function distances(edges, skips, end) {
  /** @type {[before: number, bytes: number][][]} */
  const before = edges.map(() => []);
  edges.forEach((list, node) => list.forEach(([, , target]) => before[target].push([node, 1])));
  skips.forEach((list, node) => list.forEach((target) => before[target].push([node, 0])));
  const found = edges.map(() => NEVER);
  found[end] = 0;
  for (let level = [end], bytes = 0; level.length; bytes++) {
    /** @type {number[]} */
    const next = [];
    for (let node = level.pop(); node !== undefined; node = level.pop()) {
      if (found[node] < bytes) continue;
      for (const [earlier, cost] of before[node]) {
        if (bytes + cost >= found[earlier]) continue;
        found[earlier] = bytes + cost;
        (cost ? next : level).push(earlier);
      }
    }
    level = next;
  }
  return found;
}
