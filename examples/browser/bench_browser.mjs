// /bench#ours&2: one program with so many threads. ask(prompt, options) answers greedily until the end token, and
// returns milliseconds until the first tokens, milliseconds of the whole answer, and its tokens.
const [program, threads] = location.hash.slice(1).split("&");
const MOST = 128; // tokens of an answer

const programs = {
  async ours() {
    const { load } = await import("/hamburger-edge/adapters/onnxruntime-web.js");
    const model = await load(new URL("/bundles/ours", location.href), { threads: Number(threads), store: false });
    return async (prompt, options) => {
      const begin = performance.now();
      let first = 0;
      const stream = model.stream(prompt, { ...options, maxTokens: MOST, reusePrefix: false });
      for await (const { tokens } of stream) if (tokens.length) first ||= performance.now() - begin;
      return [first, performance.now() - begin, stream.groups.flat()];
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
    const model = await AutoModelForCausalLM.from_pretrained("base", { dtype: "q8", device: "wasm" });
    class Clock extends BaseStreamer {
      times = [];
      tokens = [];
      put([ids]) {
        if (this.times.push(performance.now()) > 1) this.tokens.push(...ids.map(Number)); // the prompt comes before
      }
      end() {}
    }
    return async (prompt) => {
      const streamer = new Clock();
      const inputs = new Tensor("int64", BigInt64Array.from(prompt, BigInt), [1, prompt.length]);
      const attention_mask = new Tensor("int64", new BigInt64Array(prompt.length).fill(1n), [1, prompt.length]);
      const begin = performance.now();
      await model.generate({ inputs, attention_mask, max_new_tokens: MOST, do_sample: false, streamer });
      return [streamer.times[1] - begin, performance.now() - begin, streamer.tokens];
    };
  },
};

const ready = programs[program]();
globalThis.ask = async (...words) => (await ready)(...words);
globalThis.memory = async () => (await performance.measureUserAgentSpecificMemory()).bytes;
