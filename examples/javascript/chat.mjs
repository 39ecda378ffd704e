// node chat.mjs BUNDLE             talks on the terminal
// node chat.mjs BUNDLE "a prompt"  answers once
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { load } from "hamburger-edge/node";

const USAGE =
  'usage: node chat.mjs BUNDLE ["a prompt"] [--confidence C] [--mode plain|verify|hybrid|merge] [--max-tokens N]\n' +
  "       [--temperature T] [--seed N] [--threads N] [--show-steps] [--json]";

function readArguments() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      confidence: { type: "string" },
      mode: { type: "string" },
      "max-tokens": { type: "string" },
      temperature: { type: "string" },
      seed: { type: "string" },
      threads: { type: "string" },
      "show-steps": { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return null;
  const [bundle, prompt, ...rest] = positionals;
  if (!bundle || rest.length || (values.json && prompt === undefined)) throw new Error(USAGE);
  const number = (name) => { // undefined where it is not given; an empty string is not 0
    const text = values[name];
    return text === undefined ? undefined : text.trim() ? Number(text) : NaN;
  };
  return {
    bundle,
    prompt,
    threads: number("threads"),
    options: {
      confidence: number("confidence"),
      maxTokens: number("max-tokens"),
      mode: values.mode,
      temperature: number("temperature"),
      seed: number("seed"),
    },
    showsSteps: values["show-steps"],
    isJson: values.json,
  };
}

/** Write an answer as it comes, then its groups on standard error; return these. */
async function show(stream, { showsSteps, isJson }) {
  const [groups, texts] = [[], []];
  for await (const { tokens, text } of stream) {
    if (tokens.length) groups.push(tokens);
    if (text) texts.push(text);
    if (!isJson) process.stdout.write(text);
  }
  if (!isJson) process.stdout.write("\n");
  if (showsSteps) console.error(`groups: ${texts.join("|").replaceAll("\n", "\\n")}`);
  return groups;
}

async function talk(model, settings) {
  const chat = model.chat(settings.options);
  const lines = createInterface({ input: process.stdin, output: process.stdout, prompt: "> " });
  lines.prompt();
  for await (const line of lines) {
    if (line.trim()) {
      try {
        await show(chat.send(line), settings);
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
  const { bundle, prompt, threads, options, isJson } = settings;
  const model = await load(bundle, { threads });
  try {
    if (prompt === undefined) return await talk(model, settings);
    const stream = model.stream(prompt, options);
    const groups = await show(stream, settings);
    if (!isJson) return;
    const { text, finishReason } = stream;
    const said = { text, tokens: groups.flat(), groups, macro_steps: groups.length, finish_reason: finishReason };
    console.log(JSON.stringify(said));
  } finally {
    await model.close();
  }
}

main().catch((error) => {
  console.error(error.message === USAGE ? USAGE : `error: ${error.message}`);
  process.exitCode = 1;
});
