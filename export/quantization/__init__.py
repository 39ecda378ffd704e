"""Which weights are stored how, and how they are rounded."""
