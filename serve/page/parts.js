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
