"""How `proofread` was made: texts that people wrote, the mistakes that people make, training and judging."""
