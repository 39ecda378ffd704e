// One text by group: the groups in the KV cache, and the unread ones behind them.
import { ContextFullError } from "../errors.js";
import { wholeIn } from "../support/values.js";
import { Ledger } from "./ledger.js";

/** @import { Backend, Group } from "./backend.js" */

export const CHUNK = 128; // most slots of one call: it bounds memory, not the result

/** A backend with its ledger. Both always have the same slots. */
export class CachedText {
  /** @type {Group[]} generated or prompted, but not in the cache */
  unread = [];

  /** @param {Backend} backend */
  constructor(backend) {
    this.backend = backend;
    this.info = backend.info;
    this.ledger = new Ledger(backend.info);
  }

  /** All groups so far: those in the cache, then unread ones. @returns {Group[]} */
  get sequence() {
    return [...this.ledger.groups, ...this.unread];
  }

  /** Whether the cache has slots and positions for the unread groups. */
  get unreadFits() {
    return !this.unread.length || this.ledger.fits(...this.unread.map((group) => group.length));
  }

  /** The number of slots of one token that fit behind the unread groups. */
  get room() {
    return this.ledger.roomAfter(this.unread);
  }

  /**
   * Return groups of one token each, or throw an error that names a wrong token.
   * @param {Iterable<unknown>} tokens
   * @returns {Group[]}
   */
  checkTokens(tokens) {
    return Array.from(tokens, (token) => [wholeIn("a token", token, 0, this.info.vocabSize - 1)]);
  }

  /** Remove the last tokens of the newest step, but not all of them. @param {number} tokens */
  drop(tokens) {
    while (tokens > 0) {
      let newest = this.unread.pop();
      if (!newest) {
        newest = this.ledger.groups[this.ledger.slots - 1]; // it was verified, and is in the cache
        this.truncate(this.ledger.slots - 1);
      }
      const left = newest.slice(0, -tokens);
      if (left.length) this.unread.push(left);
      tokens -= newest.length - left.length;
    }
  }

  /**
   * Append the next unread groups in one call; return its readout after the last, and its seconds. If `left` is positive,
   * at least one group stays unread.
   * @param {number} left
   */
  async readChunk(left = 0) {
    const chunk = this.#chunk().slice(0, this.unread.length - (left ? 1 : 0));
    const fed = await this.feed(chunk, [chunk.length - 1]);
    this.unread = this.unread.slice(chunk.length);
    return fed;
  }

  /** Append slots; also return the backend's seconds. @param {readonly Group[]} groups @param {number[]} rows */
  async feed(groups, rows) {
    const start = this.ledger.slots;
    try {
      const positions = groups.map((group) => this.ledger.append(group));
      const begin = performance.now();
      const readout = await this.backend.macro(groups, positions, rows);
      return { readout, seconds: (performance.now() - begin) / 1000 };
    } catch (error) {
      this.ledger.truncate(start);
      throw error;
    }
  }

  /** Forget every slot from `slots` on. @param {number} slots */
  truncate(slots) {
    if (this.ledger.slots > slots) this.ledger.truncate(slots);
    if (this.backend.slots > slots) this.backend.truncate(slots);
  }

  /** After an interrupted call, keep only the slots that ledger and backend both have. */
  align() {
    this.truncate(Math.min(this.ledger.slots, this.backend.slots));
  }

  /**
   * Refuse a prompt that does not fit. `kept` slots hold its first `covered` groups.
   * @param {number} kept @param {readonly Group[]} groups @param {number} covered
   */
  checkRoom(kept, groups, covered) {
    const { cacheSlots, contextLength, positionRule } = this.info;
    const slots = kept + groups.length - covered;
    const positions = positionRule === "slot" ? slots : tokenCount(groups);
    if (positions > contextLength) {
      throw new ContextFullError(
        `the prompt needs ${positions} positions but the model's context has ${contextLength}: shorten it`,
      );
    }
    if (slots > cacheSlots) {
      throw new ContextFullError(
        `the prompt needs ${slots} slots but the cache holds ${cacheSlots}: shorten it, or load the model with a ` +
          "larger cacheSlots",
      );
    }
  }

  /** What is read at once: into the empty cache, where positions have no gaps (see `Backend`), nothing beyond
   * the first merged group. */
  #chunk() {
    let stop = Math.min(CHUNK, this.unread.length);
    if (!this.ledger.slots) {
      const merged = this.unread.findIndex((group, i) => i > 0 && group.length > 1);
      if (merged > 0) stop = Math.min(stop, merged);
    }
    return this.unread.slice(0, stop);
  }
}

/** Return the number of tokens. @param {readonly Group[]} groups */
export function tokenCount(groups) {
  return groups.reduce((sum, group) => sum + group.length, 0);
}
