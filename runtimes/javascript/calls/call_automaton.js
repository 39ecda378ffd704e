// The compact form of tools as an automaton, as in hamburger_edge/calls/call_automaton.py.
import { Builder, States } from "./byte_automaton.js";
import { ESCAPES, LIST_ESCAPES, NO_CALL, escaped } from "./compact_form.js";

/** @import { CallLimits, Parameter, Tool } from "./catalogue.js" */

const DECIMALS = 12;
const UNROLLED = 64; // most optional items that are counted

/** @param {readonly Tool[]} tools @param {CallLimits} limits */
export function callStates(tools, { required: isRequired = false, several = true }) {
  const builder = new Builder();
  const [start, line] = [builder.node(), builder.node()];
  builder.skip(start, line);
  let end = builder.either(tools.map((tool) => addCall(builder, line, tool)));
  if (several) builder.skip(builder.literal(end, "\n"), line);
  if (!isRequired) end = builder.either([builder.literal(start, NO_CALL), end]);
  return new States(builder, start, end);
}

/** @param {Builder} builder @param {number} start @param {Tool} tool */
function addCall(builder, start, tool) {
  /** @type {number | null} after the name; null: an argument must stand before */
  let bare = builder.literal(start, tool.name);
  /** @type {number[]} */
  let given = [];
  for (const parameter of tool.inText) {
    const begins = builder.node();
    if (bare !== null) builder.skip(bare, begins);
    if (given.length) builder.skip(builder.literal(builder.either(given), ";"), begins);
    const mark = parameter.isPositional ? " " : ` ${parameter.name} `;
    const end = addValue(builder, builder.literal(begins, mark), parameter);
    if (parameter.isPositional) [bare, given] = [null, [end]];
    else given = [...given, end];
  }
  return builder.either(bare === null ? given : [bare, ...given]);
}

/** @param {Builder} builder @param {number} start @param {Parameter} parameter */
function addValue(builder, start, parameter) {
  if (!parameter.isList) return addScalar(builder, start, parameter);
  const ends = parameter.shortest ? [] : [builder.literal(start, "[]")];
  if (!parameter.longest) return builder.either(ends);
  let end = addScalar(builder, start, parameter);
  const another = () => addScalar(builder, builder.literal(end, ", "), parameter);
  for (let index = 1; index < parameter.shortest; index++) end = another();
  ends.push(end);
  const more = parameter.longest - Math.max(1, parameter.shortest);
  if (more > UNROLLED) {
    builder.skip(another(), end);
  } else {
    for (let index = 0; index < more; index++) {
      end = another();
      ends.push(end);
    }
  }
  return builder.either(ends);
}

/** @param {Builder} builder @param {number} start @param {Parameter} parameter */
function addScalar(builder, start, parameter) {
  const { kind, isList, choices, low, high } = parameter;
  if (kind === "choice") return builder.either([...choices.keys()].map((text) => builder.literal(start, escaped(text, isList))));
  if (kind === "string") {
    return builder.text(start, isList ? "\\;," : "\\;", (isList ? LIST_ESCAPES : ESCAPES).values());
  }
  const isFractional = kind === "number";
  const ends = high >= 0 ? magnitudes(builder, start, Math.max(0, low), high, isFractional) : [];
  if (low < 0) {
    const minus = builder.literal(start, "-");
    ends.push(...magnitudes(builder, minus, Math.max(isFractional ? 0 : 1, -high), -low, isFractional));
  }
  return builder.either(ends);
}

/** @param {Builder} builder @param {number} start @param {number} low @param {number} high @param {boolean} isFractional */
function magnitudes(builder, start, low, high, isFractional) {
  const ends = [builder.between(start, low, high)];
  if (isFractional && low < high) {
    let end = builder.literal(builder.between(start, low, high - 1), ".");
    for (let index = 0; index < DECIMALS; index++) {
      end = builder.digits(end, 1);
      ends.push(end);
    }
  }
  return ends;
}
