"""The parity gate: an export says what its PyTorch model says."""
