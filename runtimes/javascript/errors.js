// Every error that this package raises on purpose: one line that names the thing at fault and the way out.
//
//     HamburgerError
//     ├── InputError            a value the caller passed: prompt, option, sampling setting
//     │   └── ContextFullError  more slots or positions than the context holds
//     ├── BundleError           an exported folder: missing or changed file, wrong version
//     ├── FetchError            a download failed, or the browser's store has no room for it
//     ├── CheckpointError       a model whose scores are no numbers
//     ├── RuntimeUnavailable    a binding of ONNX Runtime that is not installed or does not start
//     ├── RuntimeFailure        ONNX Runtime gave up in the middle
//     └── BusyError             a second answer was asked for while the first is being made

const LONGEST = 500; // characters of a message

export class HamburgerError extends Error {
  /** @param {string} message @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(oneLine(message, LONGEST), options);
    this.name = new.target.name;
  }
}

export class InputError extends HamburgerError {}
export class ContextFullError extends InputError {}
export class BundleError extends HamburgerError {}
export class FetchError extends HamburgerError {}
export class CheckpointError extends HamburgerError {}
export class RuntimeUnavailable extends HamburgerError {}
export class RuntimeFailure extends HamburgerError {}
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
