"""What is learned from: kept answers as batches, cut into groups."""
