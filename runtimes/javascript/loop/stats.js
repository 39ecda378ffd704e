// What an answer cost: counts, memory and seconds.

/** Of one answer. Seconds inside the backend are apart, so the rest is this package's own cost. */
export class Stats {
  promptTokens = 0;
  reusedTokens = 0; // of the prompt, already in the cache
  tokens = 0;
  firstTokens = 0; // of the first group
  forcedTokens = 0; // that a structure left no choice about
  macroSteps = 0; // groups
  rereadTokens = 0; // read a second time, un-merged
  microSteps = 0;
  baseCalls = 0; // forwards of the base after the prompt
  slots = 0; // in use, prompt included
  kvBytes = 0;
  kvBytesUncompressed = 0;
  prefillSeconds = 0; // in the backend
  macroSeconds = 0; // in the backend, after the prompt
  microSeconds = 0; // in the backend
  firstSeconds = 0; // from the start until the first group was said
  decodeSeconds = 0; // from then on, the caller's own time left out

  /** A forward of the base. @param {number} seconds @param {boolean} isPrompt */
  count(seconds, isPrompt) {
    if (isPrompt) this.prefillSeconds += seconds;
    else {
      this.macroSeconds += seconds;
      this.baseCalls += 1;
    }
  }

  get tokensPerStep() {
    return this.tokens / Math.max(1, this.macroSteps);
  }

  /** Tokens of the prompt a second. */
  get prefillRate() {
    return rate(this.promptTokens - this.reusedTokens, this.prefillSeconds);
  }

  /** Tokens a second. */
  get decodeRate() {
    return rate(this.tokens - this.firstTokens, this.decodeSeconds);
  }

  toJSON() {
    const { tokensPerStep, prefillRate, decodeRate } = this;
    return { ...this, tokensPerStep, prefillRate, decodeRate };
  }
}

/** @param {number} count @param {number} seconds */
function rate(count, seconds) {
  return seconds > 0 ? count / seconds : 0;
}
