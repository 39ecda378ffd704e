// All errors of this package: one line with the fault, then what to do.

const LONGEST = 500; // characters of a message

/** the base class of all */
export class HamburgerError extends Error {
  /** @param {string} message @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(oneLine(message, LONGEST), options);
    this.name = new.target.name;
  }
}

/** a wrong value from the caller: prompt, option, sampling setting */
export class InputError extends HamburgerError {}
/** an `InputError`: more slots or positions than the context holds */
export class ContextFullError extends InputError {}
/** an exported folder: missing or changed file, wrong version */
export class BundleError extends HamburgerError {}
/** a download failed; what arrived is kept for the next try */
export class FetchError extends HamburgerError {}
/** a `FetchError`: the browser has no room to keep the files */
export class StorageFullError extends FetchError {}
/** a model whose scores are not finite */
export class CheckpointError extends HamburgerError {}
/** a binding of ONNX Runtime that is not installed or does not start */
export class RuntimeUnavailableError extends HamburgerError {}
/** ONNX Runtime failed during a call */
export class RuntimeFailureError extends HamburgerError {}
/** a second answer was requested during the first */
export class BusyError extends HamburgerError {}

/**
 * Make text one printable line, without its middle if it is too long.
 * @param {string} text
 * @param {number} most
 */
export function oneLine(text, most) {
  const line = text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ");
  if (line.length <= most) return line;
  const end = Math.floor((most - 5) / 3);
  return `${line.slice(0, most - 5 - end)} ... ${line.slice(-end)}`;
}

/** Return the first line of an error. @param {unknown} error */
export function reason(error) {
  const text = error instanceof Error ? error.message : String(error);
  return oneLine(text.trim().split("\n")[0], 300);
}
