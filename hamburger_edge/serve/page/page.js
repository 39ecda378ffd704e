// The page: a conversation over /v1/chat/completions, with what its steps were like. No library, no build.

import { Meter } from "./meter.js";
import {
  askBack, at, certaintyText, dial, dialled, follow, grow, made, notice, sendOrStop, store, stored, suggest, turn, wire,
} from "./parts.js";

let messages = []; // as the interface takes them
let turns = 0; // conversations begun: what comes late for an earlier one is not shown
let running = null; // the AbortController of the answer on its way
let models = [];

// -- what is kept in this browser --------------------------------------------------------------------------

const KEPT = ["mode", "confidence", "min-certainty", "groups", "max-tokens", "temperature", "penalty"];

function keep() {
  for (const id of KEPT) store(id, at(id).type === "checkbox" ? at(id).checked : at(id).value);
  if (!at("confidence").dataset.given) store("confidence", "");
}

function restore() {
  for (const id of KEPT) {
    const value = stored(id);
    if (value === null || (id === "confidence" && !value)) continue;
    if (at(id).type === "checkbox") at(id).checked = value === "true";
    else at(id).value = value;
  }
  at("confidence").dataset.given = stored("confidence") ? "yes" : "";
  try { at("key").value = sessionStorage.getItem("hamburger.key") ?? ""; } catch { /* private windows may refuse */ }
}

// -- asking ------------------------------------------------------------------------------------------------

const headers = () => {
  const key = at("key").value.trim();
  return { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
};

function request() {
  const system = at("system").value.trim();
  const said = at("alone").checked ? messages.slice(-1) : messages;
  const body = {
    model: at("model").value || undefined,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...said],
    max_tokens: Number(at("max-tokens").value) || 400,
    temperature: Number(at("temperature").value) || 0,
    repetition_penalty: Number(at("penalty").value) || 1,
    stream: true,
    stream_options: { include_usage: true },
    ...dialled(),
  };
  const schema = readSchema();
  if (schema) {
    body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  }
  return body;
}

function readSchema() {
  const text = at("schema").value.trim();
  let schema = null, said = "Answers are words.";
  try {
    if (text) [schema, said] = [JSON.parse(text), "Answers follow this schema."];
  } catch (error) {
    said = `Not JSON yet: ${error.message}`;
  }
  at("schema").setAttribute("aria-invalid", String(Boolean(text) && !schema));
  at("schema-state").textContent = said;
  return schema;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function answer() {
  const number = turns;
  const text = made("p"), about = made("div", "about"), shown = turn("answer busy", text, about);
  shown.setAttribute("aria-busy", "true");
  notice("");
  running = new AbortController();
  controls();
  const meter = new Meter();
  const said = { role: "assistant", content: "" };
  let ended = "stopped", sureness = {}; // certainty and unsure
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(request()), signal: running.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      const piece = chunk.choices[0]?.delta.content ?? "";
      if (chunk.step) meter.step(chunk.step);
      if (piece) {
        said.content += piece;
        text.append(made("span", meter.shade(chunk.step?.tokens ?? 0), piece));
        follow();
      }
      const finish = chunk.choices[0]?.finish_reason;
      if (finish) sureness = chunk.choices[0];
      if (finish) ended = finish === "length" ? "cut at the most tokens" : "";
      if (chunk.usage) meter.end(chunk.usage);
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      ended = "failed";
      notice(error.message);
      if (/key/.test(error.message)) at("access").open = true;
    }
  }
  if (number !== turns) return;
  running = null;
  if (said.content) messages.push(said);
  shown.classList.remove("busy");
  shown.setAttribute("aria-busy", "false");
  about.append(made("span", "", meter.summary()));
  if (certaintyText(sureness)) about.append(made("span", "", certaintyText(sureness)));
  askBack(text, sureness, () => refuse(shown, said));
  if (ended) about.append(made("span", "ended", ended));
  const retry = made("button", "retry", "Retry");
  retry.type = "button";
  retry.addEventListener("click", () => again(shown, said));
  about.append(retry);
  for (const old of document.querySelectorAll(".retry")) old.hidden = old !== retry;
  controls();
  follow();
}

function again(shown, said) {
  if (running) return;
  if (messages.at(-1) === said) messages.pop();
  shown.hidden = true; // and removed once its focus has moved
  answer();
  shown.remove();
}

/** Take back a refused answer and its message, to be written anew. */
function refuse(shown, said) {
  if (running || messages.at(-1) !== said) return;
  messages.pop();
  at("prompt").value = messages.at(-1).content;
  shown.remove();
  written();
}

function ask(text) {
  if (running || !text.trim()) return;
  at("welcome").hidden = true;
  if (messages.at(-1)?.role === "user") messages.pop(); // one that got no answer
  messages.push({ role: "user", content: text });
  turn("mine", made("p", "", text));
  at("prompt").value = "";
  grow();
  answer();
}

function begin() {
  turns += 1;
  running?.abort();
  running = null;
  messages = [];
  for (const node of [...at("talk").querySelectorAll("article")]) node.remove();
  at("welcome").hidden = false;
  notice("");
  new Meter();
  controls();
  at("prompt").focus();
}

// -- the controls ------------------------------------------------------------------------------------------

function controls() {
  sendOrStop(Boolean(running));
  at("send").disabled = !at("prompt").value.trim();
}

function written() {
  grow();
  controls();
}

const chosen = () => models.find(({ id }) => id === at("model").value);

/** To a page in which this model runs without the server, where it brings one. */
function offer() {
  at("in-browser").hidden = !chosen().in_browser;
  at("in-browser").href = `/browser#${encodeURIComponent(at("model").value)}`;
}

/** What depends on the model: a task has no before. */
function changed() {
  at("alone").checked = chosen().task;
  at("alone-hint").hidden = !at("alone").checked;
  suggest(ask, at("model").value, chosen().task);
  dial(chosen());
  offer();
}

async function listModels() {
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    const body = await response.json();
    if (!response.ok) throw new Error(body.error.message);
    models = body.data;
    at("model").replaceChildren(...models.map(({ id }) => new Option(id, id)));
    notice("");
    changed();
  } catch (error) {
    notice(error.message);
    if (/key/.test(error.message)) at("access").open = true;
  }
}

wire(ask, written);
at("stop").addEventListener("click", () => { running?.abort(); at("prompt").focus(); });
at("new").addEventListener("click", begin);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") { event.preventDefault(); begin(); }
});
at("model").addEventListener("change", changed);
at("alone").addEventListener("change", () => { at("alone-hint").hidden = !at("alone").checked; });
at("schema").addEventListener("input", readSchema);
at("key-form").addEventListener("submit", (event) => { event.preventDefault(); at("key").blur(); });
at("key").addEventListener("change", () => {
  try { sessionStorage.setItem("hamburger.key", at("key").value); } catch { /* private windows may refuse */ }
  listModels();
});
for (const id of KEPT) at(id).addEventListener("change", keep);
restore();
at("talk").classList.toggle("tinted", at("groups").checked);
controls();
listModels();
