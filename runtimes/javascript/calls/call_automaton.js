// The compact form of tools as an automaton, as in hamburger_edge/calls/call_automaton.py.
import { Builder, States } from "./byte_automaton.js";
import { inTextOrder } from "./catalogue.js";
import { CONTROLS, NO_CALL, escaped } from "./compact_form.js";

/** @import { CallLimits, Parameter, Tool } from "./catalogue.js" */

const DECIMALS = 12;
const UNROLLED = 64; // most optional items that are counted
const UNROLLED_OBJECTS = 8;

/** @param {readonly Tool[]} tools @param {CallLimits} limits */
export function callStates(tools, { required: isRequired = false, several = true }) {
  const builder = new Builder();
  const [start, line] = [builder.node(), builder.node()];
  builder.skip(start, line);
  let end = builder.either(tools.map(({ name, parameters }) => addArguments(builder, builder.literal(line, name), parameters, ";")));
  if (several) builder.skip(builder.literal(end, "\n"), line);
  if (!isRequired) end = builder.either([builder.literal(start, NO_CALL), end]);
  return new States(builder, start, end);
}

/**
 * Add the arguments of a call or an object. `ends` are the marks that may follow a value.
 * @param {Builder} builder @param {number} start @param {readonly Parameter[]} parameters @param {string} ends
 */
function addArguments(builder, start, parameters, ends) {
  /** @type {number | null} the start; null: an argument must stand before */
  let bare = start;
  /** @type {number[]} */
  let given = [];
  for (const parameter of inTextOrder(parameters)) {
    const begins = builder.node();
    if (bare !== null) builder.skip(bare, begins);
    if (given.length) builder.skip(builder.literal(builder.either(given), ";"), begins);
    const end = addValue(builder, builder.literal(begins, parameter.mark), parameter, ends);
    if (parameter.isPositional) [bare, given] = [null, [end]];
    else given = [...given, end];
  }
  return builder.either(bare === null ? given : [bare, ...given]);
}

/** @param {Builder} builder @param {number} start @param {Parameter} parameter @param {string} ends */
function addValue(builder, start, parameter, ends) {
  if (!parameter.isList) return addItem(builder, start, parameter, ends);
  const listEnds = parameter.shortest ? [] : [builder.literal(start, "[]")];
  if (!parameter.longest) return builder.either(listEnds);
  let end = addItem(builder, start, parameter, `${ends},`);
  const another = () => addItem(builder, builder.literal(end, ", "), parameter, `${ends},`);
  for (let index = 1; index < parameter.shortest; index++) end = another();
  listEnds.push(end);
  const more = parameter.longest - Math.max(1, parameter.shortest);
  if (more > (parameter.kind === "object" ? UNROLLED_OBJECTS : UNROLLED)) {
    builder.skip(another(), end);
  } else {
    for (let index = 0; index < more; index++) {
      end = another();
      listEnds.push(end);
    }
  }
  return builder.either(listEnds);
}

/** @param {Builder} builder @param {number} start @param {Parameter} parameter @param {string} ends @returns {number} */
function addItem(builder, start, { kind, choices, low, high, properties, isCopied }, ends) {
  if (kind === "object") {
    return builder.literal(addArguments(builder, builder.literal(start, "("), properties, ";)"), ")");
  }
  if (kind === "choice") return builder.either([...choices.keys()].map((text) => builder.literal(start, escaped(text, ends))));
  if (kind === "string") {
    const first = ends.includes(",") ? "[" : "";
    const escapes = `\\${ends}${first}${[...CONTROLS.values()].join("")}`;
    return builder.text(start, `\\${ends}`, escapes, first, isCopied ? ends : null);
  }
  const isFractional = kind === "number";
  const numbers = high >= 0 ? magnitudes(builder, start, Math.max(0, low), high, isFractional) : [];
  if (low < 0) {
    const minus = builder.literal(start, "-");
    numbers.push(...magnitudes(builder, minus, Math.max(isFractional ? 0 : 1, -high), -low, isFractional));
  }
  return builder.either(numbers);
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
