// Every error that this package raises on purpose: one line that names the thing at fault and the way out.

const LONGEST = 500; // characters of a message

/** all of them */
export class HamburgerError extends Error {
  /** @param {string} message @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(oneLine(message, LONGEST), options);
    this.name = new.target.name;
  }
}

/** a value the caller passed: prompt, option, sampling setting */
export class InputError extends HamburgerError {}
/** an `InputError`: more slots or positions than the context holds */
export class ContextFullError extends InputError {}
/** an exported folder: missing or changed file, wrong version */
export class BundleError extends HamburgerError {}
/** a download failed, or the browser's store has no room for it */
export class FetchError extends HamburgerError {}
/** a model whose scores are no numbers */
export class CheckpointError extends HamburgerError {}
/** a binding of ONNX Runtime that is not installed or does not start */
export class RuntimeUnavailable extends HamburgerError {}
/** ONNX Runtime gave up in the middle */
export class RuntimeFailure extends HamburgerError {}
/** a second answer was asked for while the first is being made */
export class BusyError extends HamburgerError {}

/**
 * Text in one line that does nothing to a terminal, the middle left out where it is too long.
 * @param {string} text
 * @param {number} most
 */
export function oneLine(text, most) {
  const line = text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ");
  if (line.length <= most) return line;
  const end = Math.floor((most - 5) / 3);
  return `${line.slice(0, most - 5 - end)} ... ${line.slice(-end)}`;
}

/** The first line of what something threw. @param {unknown} error */
export function reason(error) {
  const text = error instanceof Error ? error.message : String(error);
  return oneLine(text.trim().split("\n")[0], 300);
}
