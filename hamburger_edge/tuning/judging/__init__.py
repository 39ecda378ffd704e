"""Right and wrong answers of a tuned model, beside answers without a model."""
