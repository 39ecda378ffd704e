// The page in which the model runs in the browser: a conversation with the model in worker.js, and what its steps
// were like. No library, no build.

import {
  askBack, at, certaintyText, dial, dialled, follow, grow, made, notice, percent, sendOrStop, suggest, turn, wire,
} from "./parts.js";

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
const key = sessionStorage.getItem("hamburger.key"); // of a server that asks for one; given on its own page
const headers = key ? { authorization: `Bearer ${key}` } : {};
const ENDINGS = { length: "cut at the most tokens", cancelled: "stopped", context: "the context is full" };

let worker = null; // of the model that is chosen
let isLoaded = false;
let answer = null; // the one on its way: {shown, text, groups, prompt}

// -- the model ---------------------------------------------------------------------------------------------

/** A worker of its own for each model: ending it frees all of its memory. */
function open() {
  worker?.terminate();
  isLoaded = false;
  finish("stopped");
  begin();
  notice("");
  at("progress").hidden = false;
  at("progress").removeAttribute("value");
  at("state").textContent = "Starting …";
  at("memory").textContent = "";
  at("examples").replaceChildren();
  const own = (worker = new Worker("/worker.js", { type: "module" }));
  own.addEventListener("message", ({ data }) => {
    if (own === worker) heard[data.said](data);
  });
  own.addEventListener("error", () => {
    if (own === worker) heard.failed({ message: "the worker does not start: is this a recent browser?" });
  });
}

const heard = {
  ready() {
    const address = new URL(`/bundles/${encodeURIComponent(at("model").value)}`, location.href).href;
    const threads = Number(at("threads").value) || 1;
    tell("load", { address, headers, provider: at("provider").value, threads });
  },

  progress({ loaded, total, isStored }) {
    at("progress").value = loaded / total;
    const from = isStored ? "from this browser" : "from the server";
    at("state").textContent = `Loading ${from}: ${megabytes(loaded)} of ${megabytes(total)}`;
  },

  loaded({ info }) {
    isLoaded = true;
    at("progress").hidden = true;
    at("state").textContent = `Ready: ${info.precision}, ${info.provider}.`;
    dial(info);
    suggest(ask, at("model").value, info.isTask);
    controls();
    remember();
  },

  step({ tokens, text, tokensPerStep, decodeTps, saved }) {
    if (!answer) return;
    if (tokens.length > 1) answer.groups += 1;
    const shade = tokens.length > 1 ? `g${answer.groups % 4}` : "";
    if (text) answer.text.append(made("span", shade, text));
    at("rate").textContent = decodeTps ? decodeTps.toFixed(decodeTps < 10 ? 1 : 0) : "–";
    at("perstep").textContent = tokensPerStep.toFixed(2);
    at("saved").textContent = percent(saved);
    follow();
  },

  ended({ finishReason, stats, ...sureness }) {
    const { tokens, macroSteps, tokensPerStep } = stats;
    const said = macroSteps ? `${tokens} tokens in ${macroSteps} steps (${tokensPerStep.toFixed(2)} a step)` : "nothing was said";
    finish(ENDINGS[finishReason] ?? "", said, sureness);
    remember();
  },

  failed({ message, task }) {
    notice(message);
    if (task === "load") {
      at("progress").hidden = true;
      at("state").textContent = "The model could not be loaded.";
    }
    finish("failed");
  },

  unkept({ message }) {
    notice(`The model is used without keeping it. ${message}`);
  },

  forgotten() {
    at("memory").textContent = "Nothing is kept in this browser.";
  },
};

function tell(task, words = {}) {
  worker.postMessage({ task, ...words });
}

/** What this takes, where the browser says it. */
async function remember() {
  const own = worker;
  const { usage = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  const kept = usage ? `${megabytes(usage)} are kept in this browser.` : "";
  at("memory").textContent = kept;
  if (!crossOriginIsolated || !performance.measureUserAgentSpecificMemory) return;
  const { bytes } = await performance.measureUserAgentSpecificMemory().catch(() => ({ bytes: 0 }));
  if (own === worker && bytes) at("memory").textContent = `${megabytes(bytes)} of memory. ${kept}`;
}

// -- the conversation --------------------------------------------------------------------------------------

function ask(text) {
  if (answer || !isLoaded || !text.trim()) return;
  at("welcome").hidden = true;
  notice("");
  turn("mine", made("p", "", text));
  const words = made("p"), shown = turn("answer busy", words);
  shown.setAttribute("aria-busy", "true");
  at("prompt").value = "";
  answer = { shown, text: words, groups: 0, prompt: text };
  written();
  follow();
  tell("ask", { text, options: options() });
}

function options() {
  const seed = at("seed").value.trim();
  return {
    maxTokens: Number(at("max-tokens").value) || 400,
    temperature: Number(at("temperature").value) || 0,
    ...(seed && { seed: Number(seed) }),
    jsonSchema: at("schema").value.trim() || null,
    ...dialled(),
  };
}

function finish(ended, said = "", sureness = {}) {
  if (!answer) return;
  const about = made("div", "about");
  const { shown, text, prompt } = answer;
  for (const part of [said, certaintyText(sureness)]) if (part) about.append(made("span", "", part));
  askBack(text, sureness, () => refuse(shown, prompt));
  if (ended) about.append(made("span", "ended", ended));
  shown.append(about);
  shown.classList.remove("busy");
  shown.setAttribute("aria-busy", "false");
  answer = null;
  controls();
  follow();
}

/** Take back a refused answer; its message may be written anew. */
function refuse(shown, prompt) {
  shown.remove();
  at("prompt").value = prompt;
  written();
}

function begin() {
  for (const node of [...at("talk").querySelectorAll("article")]) node.remove();
  at("welcome").hidden = false;
  for (const id of ["rate", "perstep", "saved"]) at(id).textContent = "–";
  controls();
}

// -- the controls ------------------------------------------------------------------------------------------

function controls() {
  sendOrStop(Boolean(answer));
  at("new").disabled = Boolean(answer);
  at("send").disabled = !isLoaded || !at("prompt").value.trim();
}

function written() {
  grow();
  controls();
}

wire(ask, written);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && answer) tell("cancel");
});
at("stop").addEventListener("click", () => tell("cancel"));
at("new").addEventListener("click", () => {
  begin();
  if (isLoaded) tell("begin");
  at("prompt").focus();
});
at("forget").addEventListener("click", () => tell("forget"));
for (const id of ["model", "provider", "threads"]) at(id).addEventListener("change", open);

at("talk").classList.add("tinted");
if (navigator.gpu) at("provider").append(new Option("graphics (WebGPU)", "webgpu"));
at("threads").max = crossOriginIsolated ? navigator.hardwareConcurrency : 1;
at("threads").value = Math.min(4, Number(at("threads").max));
at("threads-note").textContent = crossOriginIsolated ? "" : "This page is not cross-origin isolated: one thread.";
navigator.serviceWorker?.register("/service-worker.js", { type: "classic" }).catch(() => {}); // none in private windows
navigator.serviceWorker?.ready.then(() => {
  at("offline").hidden = false;
});
if (matchMedia("(display-mode: standalone)").matches) navigator.storage?.persist?.(); // an installed app keeps its files
try {
  const names = await listed();
  at("model").replaceChildren(...names.map((name) => new Option(name, name)));
  const asked = decodeURIComponent(location.hash.slice(1));
  if (names.includes(asked)) at("model").value = asked;
  open();
} catch (error) {
  notice(`The server does not list its models (${error.message}).`);
}

/** Names of bundles; without a network those of the last visit. */
async function listed() {
  let response;
  try {
    response = await fetch("/bundles.json", { headers });
  } catch (error) {
    const kept = localStorage.getItem("hamburger.bundles");
    if (!kept) throw error;
    return JSON.parse(kept);
  }
  const names = await response.json();
  if (!response.ok) throw new Error(names.error.message);
  localStorage.setItem("hamburger.bundles", JSON.stringify(names));
  return names;
}
