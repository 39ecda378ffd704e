import { load } from "hamburger-edge/web";

const loading = load("/my-bundle", { threads: 1 });
loading.then(
  () => postMessage({ kind: "ready" }),
  ({ message }) => postMessage({ kind: "error", text: message }),
);

addEventListener("message", async ({ data }) => {
  try {
    const model = await loading;
    for await (const { text } of model.stream(data)) postMessage({ kind: "text", text });
  } catch ({ message }) {
    postMessage({ kind: "error", text: message });
  }
});
