// Answers that are cut and go on, over a model whose every token depends on its place in the text alone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ScriptedBackend, ids, modelOf } from "./scripted_backend.js";

/** @import { Group } from "../loop/backend.js" */

const PROMPT = "abcdefghijzponmlk";

/** Says one script behind `PROMPT`; its stop head is sure of some places. */
class Reciting extends ScriptedBackend {
  /** @type {Group[]} */
  context = [];
  #drafted = 0; // tokens that the micro decoder has behind it

  /** @param {readonly Group[]} groups @param {readonly number[]} positions @param {readonly number[]} rows */
  async macro(groups, positions, rows) {
    this.context = [...this.context.slice(0, this.slots), ...groups];
    const ends = rows.map((row) => this.context.slice(0, this.slots + row + 1).flat().length);
    this.slots += groups.length;
    return { logits: ends.map((end) => this.#at(end)), pStop: ends.map(stop), features: /** @type {any} */ (ends) };
  }

  /** @param {any} end */
  microBegin(end) {
    this.#drafted = end;
  }

  async micro() {
    this.#drafted += 1;
    return { logits: this.#at(this.#drafted), pStop: stop(this.#drafted) };
  }

  /** @param {number} end */
  #at(end) {
    const logits = new Float32Array(this.info.vocabSize).fill(-20);
    logits[this.script[end - PROMPT.length] ?? 26] = 20;
    return logits;
  }
}

const stop = (/** @type {number} */ end) => ((end * 7) % 10) / 12;

/** @param {string} script */
function chatOf(script) {
  return modelOf(new Reciting(script)).chat({ mode: "hybrid", confidence: 0.5 });
}

for (const [name, script] of [
  ["copies the prompt", "qcdefgrijzpqcnutmlkvdefghrabcijz."],
  ["repeats itself", "qcdefgruvwxyzijzpqcnuvwxymlkdefuvwxyghruvwxyab."],
]) {
  test(`a cancelled answer that ${name} continues to the same groups`, async () => {
    const whole = chatOf(script);
    let steps = 0;
    for await (const _ of whole.send(PROMPT)) steps += 1;
    assert.deepEqual(whole.groups.flat(), ids(PROMPT + script));
    assert.ok(whole.groups.slice(PROMPT.length).some((group) => group.length > 1));
    for (let cut = 1; cut < steps; cut++) {
      const chat = chatOf(script);
      let left = cut;
      for await (const _ of chat.send(PROMPT)) if (--left === 0) break;
      for await (const _ of chat.continueAnswer());
      assert.deepEqual(chat.groups, whole.groups, `cut after ${cut} steps`);
    }
  });
}
