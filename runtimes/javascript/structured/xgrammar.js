// Loads @mlc-ai/web-xgrammar, which is written for bundlers. Without one its module exports nothing and sets a global;
// in Node.js it needs names that modules lack.
import { RuntimeUnavailableError, reason } from "../errors.js";

/** @typedef {typeof import("@mlc-ai/web-xgrammar")} Library */

/** @type {Promise<Library> | null} */
let opened = null;

/** @returns {Promise<Library>} */
export function xgrammar() {
  opened ??= open().catch((error) => {
    opened = null;
    throw new RuntimeUnavailableError(
      `@mlc-ai/web-xgrammar, which structured answers need, does not start (${reason(error)}): ` +
        "run  npm install @mlc-ai/web-xgrammar",
      { cause: error },
    );
  });
  return opened;
}

/** @type {string | null} the reason of the last failure: xgrammar writes it to the console and throws a number */
let written = null;

/** Return why xgrammar failed, in its words. */
export function failure() {
  const [line, file] = [written ?? "", /^\[FATAL\] \S+:\d+: /];
  written = null;
  if (!file.test(line)) return "cannot be compiled";
  const text = line.replace(file, "").replace(/^Check failed: \(.*\) is false: /, "");
  return text.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase()).replace(/\.$/, "");
}

/** Keep what it writes before it aborts; the console gets the rest. @param {Console["error"]} write @returns {Console["error"]} */
function listener(write) {
  return (...words) => {
    const [line] = words.map(String);
    if (line.startsWith("[FATAL]")) written = line;
    else if (!line.startsWith("Aborted(")) write(...words);
  };
}

/** @returns {Promise<Library>} */
async function open() {
  const place = /** @type {any} */ (globalThis);
  const write = console.error;
  console.error = listener(write); // the WebAssembly takes it for good
  const lent = Object.entries(nodeNames()).filter(([name]) => !(name in place));
  Object.assign(place, Object.fromEntries(lent));
  try {
    const found = /** @type {any} */ (await import("@mlc-ai/web-xgrammar"));
    const library = found.GrammarMatcher ? found : place.xgrammar;
    await library.Grammar.builtinJSONGrammar(); // starts the WebAssembly while those names exist
    return library;
  } finally {
    console.error = write;
    for (const [name] of lent) delete place[name];
  }
}

/** Names that Node.js scripts have and modules lack. */
function nodeNames() {
  if (typeof process !== "object" || typeof process.getBuiltinModule !== "function") return {};
  const { createRequire } = process.getBuiltinModule("node:module");
  const { fileURLToPath } = process.getBuiltinModule("node:url");
  return {
    require: createRequire(import.meta.url),
    __filename: fileURLToPath(import.meta.url),
    __dirname: fileURLToPath(new URL(".", import.meta.url)),
  };
}
