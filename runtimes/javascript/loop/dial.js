// The dial of an answer: its mode and its confidence, the table of defaults, and the rule that fills them in.
// The twin of hamburger_edge/loop/dial.py, which has the rule as a table.
import { InputError } from "../errors.js";
import { numberIn, safeRepr } from "../support/values.js";

/**
 * @typedef {"plain" | "verify" | "hybrid" | "merge"} Mode  "plain": nothing is drafted. "verify": the base checks every
 *   drafted token. "hybrid": tokens that are sure enough are merged, the base checks the rest. "merge": every group is
 *   merged.
 */
/** @typedef {{mode: Mode, confidence: number}} Recommended  a mode and its confidence */

/** The confidence of a mode where neither the caller nor the model gives one. @type {Readonly<Record<Mode, number>>} */
export const DEFAULT_CONFIDENCE = { plain: 1, verify: 0.8, hybrid: 0.95, merge: 0.8 };
const MODES = /** @type {Mode[]} */ (Object.keys(DEFAULT_CONFIDENCE));

/** Of a model that nobody has measured: plain decoding's text, whatever its graft is worth. @type {Recommended} */
export const UNMEASURED = { mode: "verify", confidence: DEFAULT_CONFIDENCE.verify };

/**
 * Overlay the given mode and confidence on the recommendation. `current` is the setting of a conversation that is being
 * configured: its mode stays unless another is given.
 * @param {{mode?: Mode, confidence?: number}} given
 * @param {Recommended} recommended
 * @param {Recommended} [current]
 * @returns {Recommended}
 */
export function setDial(given, recommended, current) {
  const base = current ?? recommended;
  const mode = given.mode ?? base.mode;
  if (!MODES.includes(mode)) throw new InputError(`mode must be ${names(MODES)}, got ${safeRepr(mode)}`);
  if (given.confidence === undefined) {
    const same = [base, recommended].find((each) => each.mode === mode);
    return { mode, confidence: same?.confidence ?? DEFAULT_CONFIDENCE[mode] };
  }
  const confidence = numberIn("confidence", given.confidence, 0, 1);
  if (mode === "plain" && confidence < 1) {
    const why = `mode "plain"${given.mode ? "" : ", which holds here because none is given"}`;
    const others = MODES.slice(1).join(", ");
    throw new InputError(`confidence ${confidence} has no effect in ${why}: leave it out, or give one of the modes ${others}`);
  }
  return { mode, confidence };
}

/** @param {string[]} modes */
function names(modes) {
  const quoted = modes.map((mode) => `"${mode}"`);
  return `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
}
