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

/** @returns {Promise<Library>} */
async function open() {
  const place = /** @type {any} */ (globalThis);
  const lent = Object.entries(nodeNames()).filter(([name]) => !(name in place));
  Object.assign(place, Object.fromEntries(lent));
  try {
    const found = /** @type {any} */ (await import("@mlc-ai/web-xgrammar"));
    const library = found.GrammarMatcher ? found : place.xgrammar;
    await library.Grammar.builtinJSONGrammar(); // starts the WebAssembly while those names exist
    return library;
  } finally {
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
