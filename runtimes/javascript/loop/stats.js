// The cost of an answer: counts, memory and seconds.

/** The cost of one answer. Seconds inside the backend are separate; the rest is this package's cost. */
export class Stats {
  promptTokens = 0;
  reusedTokens = 0; // of the prompt, already in the cache
  tokens = 0;
  firstTokens = 0; // of the first group
  forcedTokens = 0; // by a structure
  macroSteps = 0; // groups
  rereadTokens = 0; // re-read one by one
  microSteps = 0;
  baseCalls = 0; // after the prompt
  slots = 0; // in use, prompt included
  kvBytes = 0;
  kvBytesUncompressed = 0;
  prefillS = 0; // in the backend
  macroS = 0; // in the backend, after the prompt
  microS = 0; // in the backend
  ttftS = 0; // until the first group
  decodeS = 0; // after it, without the caller's time

  /** Count a call of the base. @param {number} seconds @param {boolean} isPrompt */
  count(seconds, isPrompt) {
    if (isPrompt) this.prefillS += seconds;
    else {
      this.macroS += seconds;
      this.baseCalls += 1;
    }
  }

  get tokensPerStep() {
    return this.tokens / Math.max(1, this.macroSteps);
  }

  /** Prompt tokens per second. */
  get prefillTps() {
    return rate(this.promptTokens - this.reusedTokens, this.prefillS);
  }

  /** Tokens per second. */
  get decodeTps() {
    return rate(this.tokens - this.firstTokens, this.decodeS);
  }

  toJSON() {
    const { tokensPerStep, prefillTps, decodeTps } = this;
    return { ...this, tokensPerStep, prefillTps, decodeTps };
  }
}

/** @param {number} count @param {number} seconds */
function rate(count, seconds) {
  return seconds > 0 ? count / seconds : 0;
}
