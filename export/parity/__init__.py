"""The parity gate: an exported model must agree with its PyTorch model."""
