// The ledger: which tokens sit in which slot of the KV cache, and at which position.
//
//     tokens     The  cat | sat  on  the | mat  .          after a prompt of 2, a group of 3 and one of 2
//     slot        0    1  |      2       |    3
//     position    0    1  |      4       |    6            rule "token": that of the last token it holds
//                 0    1  |      2       |    3            rule "slot": its index
import { ContextFullError } from "../errors.js";

/** @import { Group, ModelInfo } from "./backend.js" */

export class Ledger {
  /** @type {Group[]} one slot each */
  groups = [];
  /** @type {number[]} tokens in the cache up to and including each slot */
  #ends = [];

  /** @param {ModelInfo} info */
  constructor(info) {
    this.info = info;
  }

  get slots() {
    return this.groups.length;
  }

  get tokens() {
    return this.#ends.at(-1) ?? 0;
  }

  get bytes() {
    return this.slots * this.info.kvBytesPerSlot;
  }

  /** What a cache with one slot for every token would take. */
  get bytesUncompressed() {
    return this.tokens * this.info.kvBytesPerSlot;
  }

  /** How many more slots of one token fit. */
  get room() {
    return this.roomBehind(this.slots);
  }

  /** How many would, if the cache held so many of its slots. @param {number} slots */
  roomBehind(slots) {
    const used = this.info.positionRule === "slot" || !slots ? slots : this.#ends[slots - 1];
    return Math.max(0, Math.min(this.info.cacheSlots - slots, this.info.contextLength - used));
  }

  /** Whether groups of so many tokens each still find slots and positions. @param {number[]} sizes */
  fits(...sizes) {
    const tokens = sizes.reduce((sum, size) => sum + size, 0);
    const end = this.info.positionRule === "slot" ? this.slots + sizes.length : this.tokens + tokens;
    return this.slots + sizes.length <= this.info.cacheSlots && end <= this.info.contextLength;
  }

  /** Take the next slot for a group; returns its position. @param {Group} group */
  append(group) {
    if (!this.fits(group.length)) {
      throw new ContextFullError(
        `a group of ${group.length} does not fit: ${this.slots} of ${this.info.cacheSlots} slots are in use, ` +
          `the last position is ${this.info.contextLength - 1}: load the model with a larger cacheSlots`,
      );
    }
    const position = this.info.positionRule === "slot" ? this.slots : this.tokens + group.length - 1;
    this.#ends.push(this.tokens + group.length);
    this.groups.push(group);
    return position;
  }

  /** Forget every slot from `slots` on. @param {number} slots */
  truncate(slots) {
    this.groups.length = this.#ends.length = slots;
  }

  /**
   * How much of a prompt the cache already holds, in whole slots from the beginning.
   *
   * A slot matches the same group. With `merged`, a slot of several tokens also matches the same tokens
   * standing one by one in the prompt: what the model said earlier stays compressed.
   * @param {readonly Group[]} prompt
   * @param {boolean} merged
   */
  match(prompt, merged) {
    let covered = 0;
    for (const [slot, group] of this.groups.entries()) {
      if (same(prompt[covered], group)) covered += 1;
      else if (merged && group.every((token, i) => same(prompt[covered + i], [token]))) covered += group.length;
      else return { slots: slot, covered };
    }
    return { slots: this.slots, covered };
  }
}

/** @param {Group | undefined} one @param {Group} other */
function same(one, other) {
  return one?.length === other.length && other.every((token, i) => one[i] === token);
}
