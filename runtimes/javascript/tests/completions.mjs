// node completions.mjs FOLDER: what an editor offers at places of a program in FOLDER, an app that has the package.
import path from "node:path";
import ts from "typescript";

const HEAD = 'import { load } from "hamburger-edge/node";\nconst model = await load("bundle");\n';
const PLACES = { // `|` is where the cursor stands
  options: 'await model.generate("Hello", { | });',
  conversation: 'await model.generate({ | });',
  mode: 'await model.generate("Hello", { mode: "|" });',
  role: 'await model.generate({ messages: [{ role: "|" }] });',
  chat: "model.chat({ | });",
  stream: 'model.stream("Hello").|;',
  chunk: 'for await (const chunk of model.stream("Hello")) chunk.|;',
  result: '(await model.generate("Hello")).|;',
  stats: '(await model.generate("Hello")).stats.|;',
};

const [folder] = process.argv.slice(2);
const file = path.join(folder, "asked.mts");
let text = "";
let version = 0;
const service = ts.createLanguageService({
  getScriptFileNames: () => [file],
  getScriptVersion: (name) => (name === file ? String(version) : "0"),
  getScriptSnapshot: (name) => {
    const content = name === file ? text : ts.sys.readFile(name);
    return content === undefined ? undefined : ts.ScriptSnapshot.fromString(content);
  },
  getCurrentDirectory: () => folder,
  getCompilationSettings: () => ({
    strict: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
  }),
  getDefaultLibFileName: ts.getDefaultLibFilePath,
  fileExists: ts.sys.fileExists,
  readFile: ts.sys.readFile,
  directoryExists: ts.sys.directoryExists,
  getDirectories: ts.sys.getDirectories,
});

/** @type {Record<string, Record<string, string>>} place -> name -> its comment */
const offered = {};
for (const [place, line] of Object.entries(PLACES)) {
  const at = HEAD.length + line.indexOf("|");
  text = HEAD + line.replace("|", "");
  version += 1;
  const names = service.getCompletionsAtPosition(file, at, {})?.entries.map(({ name }) => name) ?? [];
  offered[place] = Object.fromEntries(names.map((name) => {
    const details = service.getCompletionEntryDetails(file, at, name, {}, undefined, {}, undefined);
    return [name, ts.displayPartsToString(details?.documentation)];
  }));
}
console.log(JSON.stringify(offered));
