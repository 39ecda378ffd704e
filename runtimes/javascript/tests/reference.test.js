import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { fileURLToPath } from "node:url";

test("the reference is what the types give", async () => {
  const script = fileURLToPath(new URL("../reference/reference.js", import.meta.url));
  const made = execFileSync(process.execPath, [script], { encoding: "utf-8" });
  const page = new URL("../../../docs/reference/javascript.md", import.meta.url);
  assert.equal(await readFile(page, "utf-8"), made, "run  npm run --silent reference > ../../docs/reference/javascript.md");
});
