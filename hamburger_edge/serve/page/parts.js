// What every page of a conversation does alike: this server's, and that in which the model runs in the browser.

const TALK = ["Count from 3 to 12.", "List four animals.", "Why is the sky blue?"];
const KNOWN = { // to ask of built-in models, by what a bundle's name is likely to hold
  "voice-commands": [
    "Play some jazz by Miles Davis from the fifties",
    "Will it rain in Oslo on friday",
    "book a table for four at an italian place in Boston tomorrow evening",
  ],
  proofread: [
    "We had a long wait at the airport, but the flihgt was fine and there hotel is lovely.",
    "can you come to the meeting tomorow, I want to show you the new plan for the garden",
  ],
  tiny: ["What is the capital of Norway?", "Count from 3 to 12.", "List four animals."],
};

export const at = (id) => document.getElementById(id);
export const made = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};

// -- what is kept in this browser --------------------------------------------------------------------------

export const stored = (name) => {
  try { return localStorage.getItem(`hamburger.${name}`); } catch { return null; }
};
export const store = (name, value) => {
  try { localStorage.setItem(`hamburger.${name}`, value); } catch { /* private windows may refuse */ }
};

const THEMES = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");
let theme = THEMES.find((name) => name === stored("theme")) ?? "system";

function showTheme() {
  document.documentElement.classList.toggle("dark", theme === "dark" || (theme === "system" && system.matches));
  at("theme").textContent = { system: "◐", light: "☀", dark: "☾" }[theme];
  at("theme").setAttribute("aria-label", `Theme: ${theme === "system" ? "as the system" : theme}`);
}

// -- the conversation --------------------------------------------------------------------------------------

export function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

/** The newest line stays in view, unless somebody has scrolled away from it. */
export function follow() {
  const talk = at("talk");
  if (talk.scrollHeight - talk.scrollTop - talk.clientHeight < 160) talk.scrollTop = talk.scrollHeight;
}

/** A part of the cache as a percentage; a dash where nothing was saved. */
export const percent = (part) => (Math.round(100 * part) > 0 ? `${Math.round(100 * part)}%` : "–");

/** A new article of the conversation, in view. Its label names the speaker to a screen reader. */
export function turn(name, ...parts) {
  const shown = made("article", name);
  shown.setAttribute("aria-label", name === "mine" ? "You" : "Model");
  shown.append(...parts);
  at("talk").append(shown);
  at("talk").scrollTop = at("talk").scrollHeight;
  return shown;
}

/** Certainty as a text of the line below an answer; "" if the model's was not measured. */
export const certaintyText = ({ certainty }) =>
  typeof certainty === "number" ? `certainty ${Math.round(100 * certainty)}%` : "";

/** Asks "Did you mean …?" above an answer that is unsure, or whose certainty is below the chosen one. */
export function askBack(text, { certainty, unsure }, refuse) {
  const isBelow = typeof certainty === "number" && certainty < Number(at("min-certainty").value);
  if (!unsure && !isBelow) return;
  const question = made("div", "ask-back", "Did you mean …? ");
  for (const [label, act] of [["Yes", () => {}], ["No", refuse]]) {
    const button = made("button", "", label);
    button.type = "button";
    button.addEventListener("click", () => {
      question.remove();
      act();
      at("prompt").focus();
    });
    question.append(button, " ");
  }
  text.before(question);
}

/** Send or Stop, whichever can be used. The focus of what is hidden moves to what can be used next. */
export function sendOrStop(isRunning) {
  const focused = document.activeElement;
  at("send").hidden = isRunning;
  at("stop").hidden = !isRunning;
  if (focused?.closest("[hidden]")) at(isRunning ? "stop" : "talk").focus();
}

/** As high as what is written. */
export function grow() {
  at("prompt").style.height = "auto";
  at("prompt").style.height = `${at("prompt").scrollHeight}px`;
}

/** What to ask a model of this name; nothing where it has an unknown task. */
export function suggest(ask, name, hasTask) {
  const known = Object.keys(KNOWN).find((part) => name.includes(part));
  const texts = known ? KNOWN[known] : hasTask ? [] : TALK;
  at("examples").replaceChildren(...texts.map((text) => {
    const button = made("button", "", text);
    button.type = "button";
    button.addEventListener("click", () => ask(text));
    return button;
  }));
}

let advice = { recommended: { mode: "", confidence: 0.8 }, confidences: {} }; // of the chosen model

/** Shows what mode and confidence an answer gets. `model`: what it recommends, and the confidence of each mode. */
export function dial(model = advice) {
  advice = model;
  const { dataset } = at("confidence");
  const mode = at("mode").value || advice.recommended.mode;
  const own = advice.confidences[mode] ?? advice.recommended.confidence;
  if (mode === "plain") dataset.given = "";
  at("confidence").disabled = mode === "plain"; // nothing is drafted
  at("mode").options[0].textContent = `as recommended: ${advice.recommended.mode}`;
  if (!dataset.given) at("confidence").value = own;
  const usual = at("mode").value ? `${own}` : `as recommended, ${own}`;
  at("confidence-shown").textContent = dataset.given ? Number(at("confidence").value).toFixed(2) : usual;
}

/** The options that were set: what is left out is filled in by the model's recommendation. */
export function dialled() {
  return {
    ...(at("mode").value && { mode: at("mode").value }),
    ...(at("confidence").dataset.given && { confidence: Number(at("confidence").value) }),
  };
}

/** The prompt and its keys, and the switches whose work is the same everywhere. */
export function wire(ask, written) {
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(at("prompt").value);
  });
  at("prompt").addEventListener("input", written);
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask(at("prompt").value);
  });
  at("settings-toggle").addEventListener("click", () => {
    const isOpen = at("settings").classList.toggle("open");
    at("settings-toggle").setAttribute("aria-expanded", String(isOpen));
  });
  at("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    store("theme", theme);
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();
  at("groups").addEventListener("change", () => at("talk").classList.toggle("tinted", at("groups").checked));
  at("confidence").addEventListener("input", () => {
    at("confidence").dataset.given = "yes";
    dial();
  });
  at("mode").addEventListener("change", () => { // a mode brings its own confidence
    at("confidence").dataset.given = "";
    dial();
  });
}
