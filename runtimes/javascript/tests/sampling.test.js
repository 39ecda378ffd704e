// Draws and text: NumPy's numbers, and characters that tokens cut.
import assert from "node:assert/strict";
import { it } from "node:test";
import { TextStream } from "../chat/text_stream.js";
import { Random } from "../loop/random.js";
import { Sampler } from "../loop/sampling.js";
import { kthHighest } from "../loop/scores.js";
import { Settings } from "../loop/settings.js";

/** @import { Tokenizer } from "../chat/tokenizer.js" */

it("draws are NumPy's: Generator(PCG64(seed)).random()", () => {
  for (const [seed, draws] of /** @type {[bigint, number[]][]} */ ([
    [0n, [0.6369616873214543, 0.2697867137638703, 0.04097352393619469]],
    [42n, [0.7739560485559633, 0.4388784397520523, 0.8585979199113825]],
    [2n ** 32n, [0.8897387912781343, 0.5571380502062263, 0.8009080868919721]],
    [2n ** 64n - 1n, [0.6800266789616931, 0.8453117585624743, 0.007403081599260064]],
  ])) {
    const random = new Random(seed);
    assert.deepEqual([random.next(), random.next(), random.next()], draws);
    random.advance(-2);
    assert.equal(random.next(), draws[1]);
  }
});

it("choices that are taken back are made again", () => {
  const { sampling } = new Settings({ temperature: 1, frequencyPenalty: 0.5, seed: 3 });
  const scores = Float32Array.from({ length: 50 }, (_, i) => Math.sin(i) * 2);
  const sampler = new Sampler(sampling, 50);
  sampler.begin([1, 2]);
  const first = [1, 2, 3, 4, 5].map(() => sampler.choose(scores).token);
  sampler.rewind(3);
  const again = [3, 4, 5].map(() => sampler.choose(scores).token);
  assert.deepEqual(again, first.slice(2));
  const other = new Sampler(new Settings({ temperature: 1, frequencyPenalty: 0.5 }).sampling, 50);
  other.restore(sampler.state());
  assert.equal(other.choose(scores).token, sampler.choose(scores).token);
});

it("a draft vocabulary in any order is walked by token id, as the whole vocabulary is", () => {
  const { sampling } = new Settings({ temperature: 1, topK: 5, topP: 0.9, seed: 9 });
  const draftVocab = [7, 3, 9, 0, 5, 1, 8];
  const scores = Float32Array.from(draftVocab, (token) => token / 3);
  const whole = new Float32Array(10).fill(-1000);
  for (const [i, token] of draftVocab.entries()) whole[token] = scores[i];
  const [short, long] = [new Sampler(sampling, 10, draftVocab), new Sampler(sampling, 10)];
  for (let i = 0; i < 200; i++) assert.equal(short.chooseMicro(scores)?.token, long.choose(whole).token);
});

it("the k-th highest, ties included", () => {
  const weights = Float32Array.from({ length: 300 }, (_, i) => ((i * 7919) % 97) / 97);
  const sorted = weights.slice().sort().reverse();
  for (const k of [1, 2, 50, 150, 299]) assert.equal(kthHighest(weights, k), sorted[k - 1]);
});

it("text never ends inside a character, and a broken one is said when it is known to be", () => {
  /** @param {...number} bytes */
  const push = (...bytes) => stream.push(bytes).text;
  const bytes = (/** @type {number[]} */ ids) => Uint8Array.from(ids);
  const stream = new TextStream(/** @type {Tokenizer} */ (/** @type {unknown} */ ({ bytes, stripsFirstSpace: true })), [], []);
  assert.deepEqual([push(32, 0x61), push(32, 0xf0), push(0x9f, 0x8d), push(0x94, 0xc3), push(0x62)], ["a", " ", "", "🍔", "�b"]);
  assert.deepEqual([push(0xe2, 0x82), stream.flush(), stream.flush()], ["", "�", ""]);
});
