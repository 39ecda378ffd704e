// What every page of a conversation does alike: this server's, and that in which the model runs in the browser.

const TALK = ["Count from 3 to 12.", "List four animals.", "Why is the sky blue?"];
const TASKS = { // built-in models of one task, by what a bundle's name is likely to hold
  "voice-commands": [
    "Play some jazz by Miles Davis from the fifties",
    "Will it rain in Oslo on friday",
    "book a table for four at an italian place in Boston tomorrow evening",
  ],
  proofread: [
    "We had a long wait at the airport, but the flihgt was fine and there hotel is lovely.",
    "can you come to the meeting tomorow, I want to show you the new plan for the garden",
  ],
};

export const at = (id) => document.getElementById(id);
export const made = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};

export function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

/** The newest line stays in view, unless somebody has scrolled away from it. */
export function follow() {
  const talk = at("talk");
  if (talk.scrollHeight - talk.scrollTop - talk.clientHeight < 160) talk.scrollTop = talk.scrollHeight;
}

/** As high as what is written. */
export function grow() {
  at("prompt").style.height = "auto";
  at("prompt").style.height = `${at("prompt").scrollHeight}px`;
}

/** What to ask a model of this name; nothing where it has a task that nobody here knows. */
export function suggest(ask, name = "", hasTask = false) {
  const known = Object.keys(TASKS).find((task) => name.includes(task));
  const texts = known ? TASKS[known] : hasTask ? [] : TALK;
  at("examples").replaceChildren(...texts.map((text) => {
    const button = made("button", "", text);
    button.type = "button";
    button.addEventListener("click", () => ask(text));
    return button;
  }));
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
  at("groups").addEventListener("change", () => at("talk").classList.toggle("tinted", at("groups").checked));
}
