// What the steps of an answer were like: figures, and a bar for each step.

import { at, percent } from "./parts.js";

export class Meter {
  constructor() {
    this.sizes = [];
    this.tokens = this.groups = 0;
    this.first = this.last = 0;
    this.saving = 0;
    this.draw();
  }

  step({ tokens, slots, slots_uncompressed: plain }) {
    this.last = performance.now();
    if (!tokens) return;
    this.first ||= this.last;
    this.tokens += tokens;
    this.sizes.push(tokens);
    if (tokens > 1) this.groups += 1;
    if (plain) this.saving = 1 - slots / plain;
    this.draw();
  }

  end({ slots, slots_uncompressed: plain }) {
    if (plain) this.saving = 1 - slots / plain;
    this.draw();
  }

  shade(tokens) {
    return tokens > 1 ? `g${this.groups % 4}` : "";
  }

  get rate() {
    const seconds = (this.last - this.first) / 1000; // from the first group on
    return seconds > 0 ? (this.tokens - this.sizes[0]) / seconds : 0;
  }

  summary() {
    if (!this.tokens) return "nothing was said";
    const saved = percent(this.saving) === "–" ? "" : `, ${percent(this.saving)} of the cache saved`;
    const each = (this.tokens / this.sizes.length).toFixed(2);
    return `${this.tokens} tokens in ${this.sizes.length} steps (${each} a step)${saved}`;
  }

  draw() {
    at("rate").textContent = this.rate ? this.rate.toFixed(this.rate < 10 ? 1 : 0) : "–";
    at("perstep").textContent = this.tokens ? (this.tokens / this.sizes.length).toFixed(2) : "–";
    at("saved").textContent = percent(this.saving);
    const plot = at("plot"), count = Math.max(24, this.sizes.length), width = 240 / count;
    const highest = Math.max(4, ...this.sizes);
    let groups = 0;
    plot.replaceChildren(...this.sizes.map((size, index) => {
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const height = (60 * size) / highest;
      if (size > 1) groups += 1;
      const place = { x: index * width, y: 64 - height, width: width * 0.82, height };
      for (const [name, value] of Object.entries(place)) bar.setAttribute(name, value.toFixed(2));
      bar.setAttribute("class", size > 1 ? `g${groups % 4}` : "one");
      return bar;
    }));
    const said = this.tokens ? `${this.sizes.length} steps, at most ${Math.max(...this.sizes)} tokens in one` : "no answer yet";
    plot.setAttribute("aria-label", `Tokens of each step of the answer: ${said}`);
  }
}
