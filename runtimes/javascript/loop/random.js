// NumPy's default draws: PCG64 (XSL-RR, 128 bits of state), seeded by its SeedSequence. The same seed gives
// the same draws as in Python, so a sampled answer is the same text in both.

const MASK = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;
const INVERSE = inverse(MULTIPLIER);

/** Return the inverse modulo 2^128; each round doubles the correct bits. @param {bigint} odd */
function inverse(odd) {
  let found = odd; // correct in 3 bits
  for (let bits = 3; bits < 128; bits *= 2) found = (found * (2n - odd * found)) & MASK;
  return found;
}

export class Random {
  #state = 0n;
  #increment = 0n;

  /** @param {bigint} seed  0 to 2^64 - 1 */
  constructor(seed) {
    const [a, b, c, d] = seedWords(seed);
    this.#increment = (((c << 64n) | d) << 1n) & MASK | 1n;
    this.#step();
    this.#state = (this.#state + ((a << 64n) | b)) & MASK;
    this.#step();
  }

  /** The next draw, in [0, 1). */
  next() {
    this.#step();
    const folded = (this.#state >> 64n) ^ (this.#state & 0xffffffffffffffffn);
    const turn = this.#state >> 122n;
    const rotated = BigInt.asUintN(64, (folded >> turn) | (folded << (64n - turn)));
    return Number(rotated >> 11n) / 2 ** 53;
  }

  /** Skip this many draws, or take them back if negative. @param {number} draws */
  advance(draws) {
    for (; draws > 0; draws--) this.#step();
    for (; draws < 0; draws++) this.#state = ((this.#state - this.#increment) * INVERSE) & MASK;
  }

  #step() {
    this.#state = (this.#state * MULTIPLIER + this.#increment) & MASK;
  }
}

/** SeedSequence(seed).generate_state(4, uint64). @param {bigint} seed */
function seedWords(seed) {
  const given = [Number(seed & 0xffffffffn), Number(seed >> 32n)];
  let hash = 0x43b0d7e5;
  /** @param {number} value */
  const scramble = (value) => {
    value ^= hash;
    hash = Math.imul(hash, 0x931e8875);
    value = Math.imul(value, hash);
    return value ^ (value >>> 16);
  };
  const pool = [0, 1, 2, 3].map((i) => scramble(given[i] ?? 0));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) {
      if (from === to) continue;
      const mixed = Math.imul(0xca01f9dd, pool[to]) - Math.imul(0x4973f715, scramble(pool[from]));
      pool[to] = mixed ^ (mixed >>> 16);
    }
  }
  hash = 0x8b51f9dd;
  const words = Array.from({ length: 8 }, (_, i) => {
    let word = pool[i % 4] ^ hash;
    hash = Math.imul(hash, 0x58f38ded);
    word = Math.imul(word, hash);
    return BigInt((word ^ (word >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((i) => words[i] | (words[i + 1] << 32n));
}
