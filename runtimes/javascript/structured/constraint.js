// A constraint on an answer: the tokens that may come next. A grammar is one, the edits of a prompt are another.

/**
 * @typedef {object} Constraint  The state of one answer under its constraint. It follows the sampler's choices, and back.
 * @property {number | null} maxTokens  default length of the answer; null: the loop's
 * @property {string | null} fallback  the text that replaces an unsure answer; null: the answer stays
 * @property {boolean | null} isComplete  whether the answer may end here; null: the constraint defines no complete answer
 * @property {number | null} forced  the only token that may come next; null: there is a choice
 * @property {boolean} isEnded  whether the answer must end here
 * @property {boolean} masks  whether scores are masked; otherwise only the chosen token is checked
 * @property {(token: number) => boolean} keeps  Whether the mask keeps a token's score.
 * @property {() => Promise<void>} look  Compute what may come next; call it after each token, before the other members.
 * @property {(token: number) => boolean} allows  Whether a chosen token may come next.
 * @property {(prompt: readonly number[], answer: readonly number[]) => Promise<void>} begin  Start an answer to this prompt,
 *   and follow its tokens so far.
 * @property {(token: number) => void} consume
 * @property {(tokens: number) => void} rewind
 * @property {() => void} close
 */

/** The constraint of an answer that has none. @implements {Constraint} */
export class Unconstrained {
  masks = false;

  /** @returns {boolean | null} */
  get isComplete() {
    return null;
  }

  /** @returns {number | null} */
  get forced() {
    return null;
  }

  get isEnded() {
    return false;
  }

  /** @returns {number | null} */
  get maxTokens() {
    return null;
  }

  /** @returns {string | null} */
  get fallback() {
    return null;
  }

  async look() {}

  /** @param {number} _token */
  keeps(_token) {
    return true;
  }

  /** @param {number} token */
  allows(token) {
    return this.keeps(token);
  }

  /** @param {readonly number[]} _prompt @param {readonly number[]} _answer */
  async begin(_prompt, _answer) {}

  /** @param {number} _token */
  consume(_token) {}

  /** @param {number} _tokens */
  rewind(_tokens) {}

  close() {}
}
