"""How parameters move: one step of them, alone or in several processes, and when to stop."""
