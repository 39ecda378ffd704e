// node chat.mjs BUNDLE             talks on the terminal
// node chat.mjs BUNDLE "a prompt"  answers once
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Hamburger } from "./hamburger.mjs";

const USAGE =
  'usage: node chat.mjs BUNDLE ["a prompt"] [--confidence C] [--mode trust|verify] [--max-tokens N]\n' +
  "       [--threads N] [--show-steps] [--json]";

function readArguments() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      confidence: { type: "string", default: "0.8" },
      mode: { type: "string", default: "trust" },
      "max-tokens": { type: "string", default: "256" },
      threads: { type: "string" },
      "show-steps": { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return null;
  const [bundle, prompt, ...rest] = positionals;
  if (!bundle || rest.length || (values.json && prompt === undefined)) throw new Error(USAGE);
  const number = (text) => (text.trim() ? Number(text) : NaN); // an empty string is not 0
  const [confidence, maxTokens] = [number(values.confidence), number(values["max-tokens"])];
  return {
    bundle,
    prompt,
    threads: values.threads === undefined ? undefined : number(values.threads),
    options: { confidence, maxTokens, mode: values.mode },
    showsSteps: values["show-steps"],
    isJson: values.json,
  };
}

/** Answers `input`, and writes the text as it comes; {text, groups}. */
async function answer(model, input, { options, showsSteps }, write) {
  let text = "";
  const groups = [];
  for await (const step of model.generate(input, options)) {
    text += step.text;
    groups.push(step.tokens);
    write(showsSteps ? `[${step.text}]` : step.text);
  }
  return { text, groups };
}

async function talk(model, settings) {
  const messages = [];
  const lines = createInterface({ input: process.stdin, output: process.stdout, prompt: "> " });
  lines.prompt();
  for await (const line of lines) {
    if (line.trim()) {
      const asked = [...messages, { role: "user", content: line }];
      try {
        const { text } = await answer(model, asked, settings, (some) => process.stdout.write(some));
        messages.push(asked.at(-1), { role: "assistant", content: text });
        process.stdout.write("\n");
      } catch (error) {
        console.error(`error: ${error.message}`);
      }
    }
    lines.prompt();
  }
}

async function main() {
  const settings = readArguments();
  if (!settings) return console.log(USAGE);
  const { bundle, prompt, threads, isJson } = settings;
  const model = await Hamburger.load(bundle, { threads });
  try {
    if (prompt === undefined) return await talk(model, settings);
    const write = (some) => isJson || process.stdout.write(some);
    const { text, groups } = await answer(model, prompt, settings, write);
    if (!isJson) return console.log();
    console.log(JSON.stringify({ text, tokens: groups.flat(), groups, macro_steps: groups.length }));
  } finally {
    await model.close();
  }
}

main().catch((error) => {
  console.error(error.message === USAGE ? USAGE : `error: ${error.message}`);
  process.exitCode = 1;
});
