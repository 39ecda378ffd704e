"""What a run of `tune` ends with: figures, certainty, wrong answers, card and published checkpoint."""
