// node react_native.mjs BINDING BUNDLE PROMPT...: the groups of plain answers by the adapter for React Native, with
// BINDING (a module's name or path) in the place of onnxruntime-react-native, which Node.js cannot run.
import { readFile } from "node:fs/promises";
import { register } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [binding, bundle, ...prompts] = process.argv.slice(2);
const place = path.isAbsolute(binding) ? pathToFileURL(binding).href : binding;
const hook = `export const resolve = (name, context, next) =>
  next(name === "onnxruntime-react-native" ? ${JSON.stringify(place)} : name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
const { load } = await import("../adapters/onnxruntime-react-native.js");
try {
  const model = await load(bundle, { read: readFile, threads: 1 });
  const found = [];
  for (const prompt of prompts) found.push((await model.generate(prompt, { maxTokens: 24 })).groups);
  await model.close();
  console.log(JSON.stringify(found));
} catch (error) {
  console.log(String(error)); // its name and its message
}
