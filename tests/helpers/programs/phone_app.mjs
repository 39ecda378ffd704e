// node phone_app.mjs BUNDLE STORE PROMPT: the steps of examples/react-native, with Node.js in the place of a phone: its
// files and hashes, and onnxruntime-node's binding for that of React Native. Prints what each step gave, as JSON.
import { createHash } from "node:crypto";
import { appendFile, mkdir, open, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { register } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [bundle, store, prompt] = process.argv.slice(2);
const root = path.resolve(import.meta.dirname, "../../..");
const at = (...parts) => pathToFileURL(path.join(root, ...parts)).href;
const places = {
  "hamburger-edge": at("runtimes/javascript/index.js"),
  "hamburger-edge/react-native": at("runtimes/javascript/adapters/onnxruntime-react-native.js"),
  "onnxruntime-react-native": at("runtimes/javascript/node_modules/onnxruntime-node/dist/index.js"),
};
const hook = `const places = ${JSON.stringify(places)};
export const resolve = (name, context, next) => next(places[name] ?? name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
const { openAssistant } = await import(at("examples/react-native/assistant.js"));

const device = {
  size: (file) => stat(file).then(({ size }) => size, () => null),
  async read(file, start, length) {
    const handle = await open(file);
    const { buffer } = await handle.read(new Uint8Array(length), 0, length, start).finally(() => handle.close());
    return buffer;
  },
  async append(file, bytes) {
    await mkdir(path.dirname(file), { recursive: true });
    await appendFile(file, bytes);
  },
  move: rename,
  remove: (file) => rm(file, { recursive: true, force: true }),
  sha256() {
    const hash = createHash("sha256");
    return { update: (bytes) => void hash.update(bytes), digest: () => hash.digest("hex") };
  },
  fetch: (address, options) => fetch(address, options),
};

const asked = []; // ranges of the weights
let isDamaged = false, breaksAfter = Infinity; // requests of weights
const server = createServer(async (request, response) => {
  const name = request.url.split("/").at(-1);
  const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
  if (name === "weights.bin") {
    asked.push(Number(range[1]));
    if (asked.length > breaksAfter) return request.socket.destroy();
  }
  const content = await readFile(path.join(bundle, name));
  if (name === "weights.bin" && isDamaged) content[content.length - 1] ^= 1;
  response.statusCode = range ? 206 : 200;
  response.end(range ? content.subarray(Number(range[1]), Number(range[2]) + 1) : content);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${server.address().port}/bundle`;

const report = {};
const failure = (promise) => promise.then(() => null, ({ name, message }) => `${name}: ${message}`);

breaksAfter = 1;
report.broken = await failure(openAssistant(address, store, device));
breaksAfter = Infinity;
isDamaged = true;
report.damaged = await failure(openAssistant(address, store, device));
report.requests = asked.splice(0);
isDamaged = false;
const progress = [];
let assistant = await openAssistant(address, store, device, { onProgress: (loaded, total) => progress.push([loaded, total]) });
report.refetched = asked.splice(0);
report.progress = progress.at(-1);
const pieces = [];
report.answer = await assistant.ask(prompt, (text) => pieces.push(text));
report.pieces = pieces;
await assistant.close();
assistant = await openAssistant(address, store, device);
report.second = asked.splice(0);
await assistant.close();
server.closeAllConnections();
await new Promise((resolve) => server.close(resolve));
assistant = await openAssistant(address, store, device); // without a network
report.offline = await assistant.ask(prompt);
await assistant.close();
report.files = await readdir(store);
console.log(JSON.stringify(report));
