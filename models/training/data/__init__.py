"""Training data: stored answers, cut into groups, as batches."""
