// node assistant.mjs BUNDLE   calls a function for each spoken command; BUNDLE is an export of voice-commands
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { generateText, jsonSchema, tool } from "ai";
import { languageModel } from "hamburger-edge/ai-sdk";
import { load } from "hamburger-edge/node";

const FUNCTIONS = { // one for each intent of the model; an app would do more than print
  AddToPlaylist: ({ entity_name, artist, playlist = "favourites" }) => `${entity_name ?? artist ?? "This"} is on ${playlist}.`,
  BookRestaurant: ({ party_size_number = "one", city = "town" }) => `A table for ${party_size_number} in ${city}.`,
  GetWeather: ({ city = "this place", timeRange = "now" }) => `The weather in ${city}, ${timeRange}: look outside.`,
  PlayMusic: ({ artist = "anybody", genre = "music" }) => `Playing ${genre} by ${artist}.`,
  RateBook: ({ object_name = "The book", rating_value = "no" }) => `${object_name}: ${rating_value} points.`,
  SearchCreativeWork: ({ object_name = "it" }) => `Looking for ${object_name}.`,
  SearchScreeningEvent: ({ movie_name = "films", location_name = "a cinema" }) => `${movie_name} at ${location_name}.`,
};
const SCHEMA = new URL("../../models/zoo/voice-commands/schema.json", import.meta.url);
const { anyOf } = JSON.parse(readFileSync(SCHEMA, "utf8"));
const tools = Object.fromEntries(anyOf.map(({ properties: { intent, slots } }) => [
  intent.const, tool({ inputSchema: jsonSchema(slots), execute: FUNCTIONS[intent.const] }),
]));

async function answer(model, prompt) {
  const { toolResults } = await generateText({ model, tools, toolChoice: "required", prompt, maxRetries: 0 });
  return toolResults.map(({ toolName, output }) => `${toolName}: ${output}`).join("\n");
}

if (!process.argv[2]) throw new Error("usage: node assistant.mjs BUNDLE");
const runtime = await load(process.argv[2]);
const model = languageModel(runtime, { call: { name: "intent", input: "slots" } }); // as this model writes a call
const lines = createInterface({ input: process.stdin, output: process.stdout, prompt: "> " });
lines.prompt();
for await (const line of lines) {
  if (line.trim()) console.log(await answer(model, line).catch((error) => `error: ${error.message}`));
  lines.prompt();
}
await runtime.close();
