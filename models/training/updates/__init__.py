"""Updates of parameters: steps in one or several processes, means, early stopping, LoRA."""
