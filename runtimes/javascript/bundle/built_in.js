// Built-in models, whose bundles only the Python package makes: a name in the place of a bundle is a likely mistake.

const NAMES = ["tiny", "smollm2-135m", "voice-commands", "proofread"];

/**
 * Return the way to a bundle that was not found.
 * @param {string} place  what was given as a folder or an address
 * @param {string} otherwise  the way for a place that is no built-in model's name
 */
export function wayToBundle(place, otherwise) {
  if (!NAMES.includes(place)) return otherwise;
  return (
    `"${place}" is a built-in model, of which Python makes the bundle: run  ` +
    `hamburger-edge export ${place} -o ${place}  and give that folder`
  );
}
