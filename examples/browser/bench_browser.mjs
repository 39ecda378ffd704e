// /bench#ours&2: one program with so many threads. rate(prompt, tokens, options) says tokens a second, from an
// answer's first token on.
const [program, threads] = location.hash.slice(1).split("&");

const programs = {
  async ours() {
    const { load } = await import("/hamburger-edge/adapters/onnxruntime-web.js");
    const model = await load(new URL("/bundles/ours", location.href), { threads: Number(threads), store: false });
    return async (prompt, maxTokens, options) => {
      const { stats } = await model.generate(prompt, { ...options, maxTokens, ignoreEos: true, reusePrefix: false });
      return stats.decodeRate;
    };
  },

  async theirs() {
    const { AutoModelForCausalLM, BaseStreamer, Tensor, env } = await import("/transformers.mjs");
    env.allowRemoteModels = env.useBrowserCache = env.useWasmCache = false;
    env.allowLocalModels = true;
    env.localModelPath = "/models/";
    const { wasm } = env.backends.onnx;
    wasm.numThreads = Number(threads);
    wasm.wasmPaths = { wasm: "/packages/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm" };
    let loading;
    class Clock extends BaseStreamer {
      times = [];
      put() {
        this.times.push(performance.now());
      }
      end() {}
    }
    return async (prompt, tokens, { dtype }) => {
      const model = await (loading ??= AutoModelForCausalLM.from_pretrained("base", { dtype, device: "wasm" }));
      const streamer = new Clock();
      const ids = new Tensor("int64", BigInt64Array.from(prompt, BigInt), [1, prompt.length]);
      const mask = new Tensor("int64", new BigInt64Array(prompt.length).fill(1n), [1, prompt.length]);
      await model.generate({
        inputs: ids, attention_mask: mask, max_new_tokens: tokens, min_new_tokens: tokens, do_sample: false, streamer,
      });
      const [, first, ...more] = streamer.times; // the prompt comes before
      return (1000 * more.length) / (more.at(-1) - first);
    };
  },
};

const ready = programs[program]();
globalThis.rate = async (...words) => (await ready)(...words);
