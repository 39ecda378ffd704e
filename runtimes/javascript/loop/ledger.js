// The ledger: the tokens and the position of each slot of the KV cache.
//
//     tokens     The  cat | sat  on  the | mat  .          after a prompt of 2, a group of 3 and one of 2
//     slot        0    1  |      2       |    3
//     position    0    1  |      4       |    6            rule "token": that of its last token
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

  /** The bytes of a cache with one slot per token. */
  get bytesUncompressed() {
    return this.tokens * this.info.kvBytesPerSlot;
  }

  /** The number of slots of one token that still fit. */
  get room() {
    return this.roomBehind(this.slots);
  }

  /** The same if the cache held only this many of its slots. @param {number} slots */
  roomBehind(slots) {
    const used = this.info.positionRule === "slot" || !slots ? slots : this.#ends[slots - 1];
    return Math.max(0, Math.min(this.info.cacheSlots - slots, this.info.contextLength - used));
  }

  /** The same if the cache held these groups, too. @param {readonly Group[]} groups */
  roomAfter(groups) {
    const isBySlot = this.info.positionRule === "slot";
    const used = isBySlot ? this.slots + groups.length : groups.reduce((sum, group) => sum + group.length, this.tokens);
    return Math.max(0, Math.min(this.info.cacheSlots - this.slots - groups.length, this.info.contextLength - used));
  }

  /** Whether groups of these sizes still fit. @param {number[]} sizes */
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
   * Return how much of a prompt the cache holds, in whole slots from the beginning.
   *
   * A slot matches the same group. With `merged` a slot of several tokens also matches the same tokens as single groups
   * of the prompt, so earlier answers stay compressed.
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
