"""How each mode makes its steps: plain, merge, and verify, of which hybrid is one rule more."""
