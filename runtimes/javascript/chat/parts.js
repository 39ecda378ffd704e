// The parts of a loaded model, which its conversations share.
import { Edits } from "../loop/edits.js";
import { Sampler } from "../loop/sampling.js";
import { Grammars } from "../structured/grammar.js";
import { TextStream } from "./text_stream.js";
import { Turns } from "./stream.js";

/** @import { Engine } from "../loop/engine.js" */
/** @import { Settings } from "../loop/settings.js" */
/** @import { ChatTemplate } from "./template.js" */
/** @import { Tokenizer } from "./tokenizer.js" */

export class Parts {
  turns = new Turns();
  grammars;

  /** @param {Engine} engine @param {Tokenizer} tokenizer @param {ChatTemplate} template */
  constructor(engine, tokenizer, template) {
    this.engine = engine;
    this.tokenizer = tokenizer;
    this.template = template;
    this.grammars = new Grammars(tokenizer, engine.info.vocabSize, engine.info.eosIds);
  }

  /** @param {Settings} settings */
  sampler(settings) {
    const { vocabSize, draftVocab, eosIds, editsPrompt } = this.engine.info;
    const edits = editsPrompt ? new Edits((token) => this.tokenizer.bytes([token]), eosIds) : null;
    return new Sampler(settings.sampling, vocabSize, draftVocab, settings.probabilities, edits);
  }

  /** @param {Settings} settings */
  textStream(settings) {
    return new TextStream(this.tokenizer, settings.stop, this.engine.info.eosIds, settings.structure !== null);
  }
}
