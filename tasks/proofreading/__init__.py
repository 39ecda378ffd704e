"""Clean sentences that a base writes, mistakes put into them, and the judge of who puts them right."""
