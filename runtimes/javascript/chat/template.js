// Turns of a conversation become text by the markup around them. Only markup can become a special token; people's text
// cannot.
import { checkText } from "../support/values.js";

/** @typedef {[text: string, isTrusted: boolean]} Part  text, and whether special tokens in it count */

/**
 * @typedef {object} Markup  prefix [beforeSystem SYSTEM afterSystem] beforeUser TEXT afterUser beforeAnswer ANSWER ...
 * @property {string} [prefix]
 * @property {string} [before_system]
 * @property {string} [after_system]
 * @property {string} [before_user]
 * @property {string} [after_user]
 * @property {string} [before_answer]
 * @property {string} [after_answer]
 * @property {string | null} [default_system]
 * @property {boolean} [system_in_user]
 * @property {boolean} [trim]
 */

// The white space of Python's `strip`, which differs from `trim`'s.
const WHITE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const OUTER = new RegExp(`^${WHITE}|${WHITE}$`, "g");

export class ChatTemplate {
  #markup;

  /** @param {Markup | null} markup  null: texts without markup */
  constructor(markup) {
    this.#markup = markup ?? {};
  }

  /** Whether it is for single requests, as `tune` makes it: the end of the request begins the answer. */
  get isTask() {
    const m = this.#markup;
    return Boolean(m.after_user) && !(m.before_system || m.after_system || m.before_answer);
  }

  /** The system text where none is given. */
  get defaultSystem() {
    return this.#markup.default_system ?? null;
  }

  /**
   * Return the beginning of a conversation; an empty system text leaves out the system turn.
   * @param {string} text
   * @param {string | null} [system]
   * @returns {Part[]}
   */
  firstTurn(text, system = null) {
    const m = this.#markup;
    const given = system ?? m.default_system;
    /** @type {Part[]} */
    const around = given ? [[m.before_system ?? "", true], this.#written(given), [m.after_system ?? "", true]] : [];
    const [before, ...user] = this.#user(text);
    const turn = m.system_in_user ? [before, ...around, ...user] : [...around, before, ...user];
    return [[m.prefix ?? "", true], ...turn];
  }

  /** Return the parts between an answer and the next one. @param {string} text @returns {Part[]} */
  nextTurn(text) {
    return [[this.#markup.after_answer ?? "", true], ...this.#user(text)];
  }

  /** @param {string} text @returns {Part[]} */
  #user(text) {
    const m = this.#markup;
    return [
      [m.before_user ?? "", true],
      this.#written(text),
      [m.after_user ?? "", true],
      [m.before_answer ?? "", true],
    ];
  }

  /** @param {string} text @returns {Part} */
  #written(text) {
    checkText(text);
    return [this.#markup.trim ? text.replace(OUTER, "") : text, false];
  }
}
