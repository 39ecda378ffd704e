// The model, away from the page's own thread. The page posts {task, ...}; what comes back is {said, ...}.
import { StorageFullError, setDial } from "hamburger-edge";
import { clearStore, load } from "hamburger-edge/web";

let model, chat, seed, control;

const tasks = {
  async load({ address, ...options }) {
    let told = 0;
    const onProgress = (progress) => { // at most some forty messages a second
      const now = performance.now();
      if (now - told < 25 && progress.loaded < progress.total) return;
      told = now;
      postMessage({ said: "progress", ...progress });
    };
    model = await load(address, { ...options, onProgress }).catch((error) => {
      if (!(error instanceof StorageFullError)) throw error;
      postMessage({ said: "unkept", message: error.message });
      return load(address, { ...options, onProgress, store: false });
    });
    const { provider, precision, recommended } = model.info;
    const modes = ["plain", "verify", "hybrid", "merge"];
    const confidences = Object.fromEntries(modes.map((mode) => [mode, setDial({ mode }, recommended).confidence]));
    postMessage({ said: "loaded", info: { provider, precision, recommended, confidences, isTask: model.isTask } });
  },

  async ask({ text, options: given }) {
    const options = { ...given, ...setDial(given, model.info.recommended) };
    if (chat) chat.configure(options.seed === seed ? { ...options, seed: undefined } : options); // its draws go on
    else chat = model.chat(options);
    seed = options.seed;
    control = new AbortController();
    const stream = chat.send(text, { signal: control.signal });
    for await (const { tokens, text: piece } of stream) {
      const { tokensPerStep, decodeTps, kvBytes, kvBytesUncompressed } = stream.stats;
      const saved = kvBytesUncompressed ? 1 - kvBytes / kvBytesUncompressed : 0;
      postMessage({ said: "step", tokens: [...tokens], text: piece, tokensPerStep, decodeTps, saved });
    }
    const { finishReason, certainty, unsure } = stream;
    postMessage({ said: "ended", finishReason, certainty, unsure, stats: stream.stats.toJSON() });
  },

  cancel() {
    control?.abort();
  },

  begin() {
    chat = null;
  },

  async forget() {
    await clearStore();
    postMessage({ said: "forgotten" });
  },
};

addEventListener("message", async ({ data: { task, ...words } }) => {
  try {
    await tasks[task](words);
  } catch (error) {
    postMessage({ said: "failed", task, message: error.message });
  }
});
postMessage({ said: "ready" });
