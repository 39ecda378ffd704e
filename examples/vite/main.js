// The page: a form, and a worker that computes.
const form = document.querySelector("form");
const answer = document.getElementById("answer");
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });

worker.addEventListener("message", ({ data: { kind, text } }) => {
  if (kind === "text") answer.textContent += text;
  else answer.textContent = kind === "error" ? text : "";
  if (kind !== "text") form.elements[1].disabled = kind === "error";
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  answer.textContent = "";
  worker.postMessage(form.elements.message.value);
});
