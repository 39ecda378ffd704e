// Dates and times in JSON schemas, as regular expressions: Python's, in hamburger_edge/structured/formats.py, where the
// reasons are.

const YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
const FOURTH = "(?:0[48]|[2468][048]|[13579][26])"; // two digits of a multiple of four, but not 00
const DATE =
  `(?:${YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
  `|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}${FOURTH}|${FOURTH}00)-02-29)`;
const [HOUR, MINUTE] = ["(?:[01][0-9]|2[0-3])", "[0-5][0-9]"];
const TIME = `${HOUR}:${MINUTE}:${MINUTE}(?:[.][0-9]{1,9})?(?:Z|[+-]${HOUR}:${MINUTE})`;

/** @type {Record<string, string>} */
export const PATTERNS = { date: `^${DATE}$`, time: `^${TIME}$`, "date-time": `^${DATE}T${TIME}$` };
