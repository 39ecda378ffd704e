// The parts of a loaded model, which its conversations share.
import { InputError } from "../errors.js";
import { Unconstrained } from "../structured/constraint.js";
import { CopiedFields } from "../structured/copied_fields.js";
import { Edits } from "../structured/edits.js";
import { CallGrammars } from "../calls/call_grammar.js";
import { checkLimits, readTools } from "../calls/catalogue.js";
import { Sampler } from "../loop/sampling.js";
import { MAX_TOKENS } from "../loop/answer_run.js";
import { Grammars } from "../structured/grammar.js";
import { TextStream } from "./text_stream.js";
import { Turns } from "./stream.js";

/** @import { Group } from "../loop/backend.js" */
/** @import { Constraint } from "../structured/constraint.js" */
/** @import { Engine } from "../loop/modes/engine.js" */
/** @import { Settings } from "../loop/settings.js" */
/** @import { Transcript } from "./messages.js" */
/** @import { ChatTemplate } from "./template.js" */
/** @import { Tokenizer } from "./tokenizer.js" */

export const NO_TOOLS = "this model has no tools to call: make one with  hamburger-edge tune --tools";

export class Parts {
  turns = new Turns();
  #grammars;

  /** @param {Engine} engine @param {Tokenizer} tokenizer @param {ChatTemplate} template */
  constructor(engine, tokenizer, template) {
    this.engine = engine;
    this.tokenizer = tokenizer;
    this.template = template;
    this.#grammars = new Grammars(tokenizer, engine.info.vocabSize, engine.info.eosIds);
    const { tools = [], copiedFields = [], vocabSize, eosIds } = engine.info;
    this.calls = tools.length ? new CallGrammars(readTools(tools), tokenizer, vocabSize, eosIds, copiedFields) : null;
  }

  /**
   * Return the tokens between a conversation's groups and the next answer. If the last group already ends with the end
   * token, the end token is not repeated.
   * @param {string} text @param {readonly Group[]} before @param {string | null} system
   */
  turn(text, before, system) {
    const newest = before.at(-1)?.at(-1);
    if (newest === undefined) return this.tokenizer.encodeParts(this.template.firstTurn(text, system));
    const ids = this.tokenizer.encodeParts(this.template.nextTurn(text));
    return ids[0] === newest && this.engine.info.eosIds.includes(newest) ? ids.slice(1) : ids;
  }

  /** Return a conversation's groups, each of one token. @param {Transcript} transcript */
  conversation({ system, turns }) {
    /** @type {Group[]} */
    const groups = [];
    for (let index = 0; index < turns.length; index += 2) {
      const ids = this.turn(turns[index], groups, system);
      const answer = turns[index + 1];
      // encoded alone: no token spans the beginning of an answer
      if (answer) ids.push(...this.tokenizer.encodeParts([[answer, false]]));
      groups.push(...this.engine.checkTokens(ids));
    }
    return groups;
  }

  /** @param {Settings} settings */
  sampler(settings) {
    const { vocabSize, draftVocab, certainty = null } = this.engine.info;
    if (settings.minCertainty !== null && !certainty) {
      throw new InputError(
        `minCertainty ${settings.minCertainty} needs a model whose certainty was measured: leave it out, or measure this ` +
          "model with  hamburger-edge eval --certainty",
      );
    }
    return new Sampler(settings.sampling, vocabSize, draftVocab, settings.topProbabilities, certainty !== null);
  }

  /**
   * Return what an answer follows: its structure, else the model's tools, edits of the prompt or copied fields.
   * @param {Settings} settings @returns {Promise<Constraint>}
   */
  async constraint({ structure, maxTokens }) {
    const { editsPrompt, copiedFields = [], eosIds } = this.engine.info;
    if (structure && structure.kind !== "calls") return this.#grammars.start(structure);
    if (this.calls) return this.calls.start(checkLimits(JSON.parse(structure?.text ?? "{}")), maxTokens ?? MAX_TOKENS);
    if (structure) throw new InputError(NO_TOOLS);
    const tokenBytes = (/** @type {number} */ token) => this.tokenizer.bytes([token]);
    if (editsPrompt) return new Edits(tokenBytes, eosIds);
    return copiedFields.length ? new CopiedFields(copiedFields, tokenBytes, eosIds) : new Unconstrained();
  }

  /** @param {Settings} settings */
  textStream(settings) {
    return new TextStream(this.tokenizer, settings.stop, this.engine.info.eosIds, settings.structure !== null);
  }
}
