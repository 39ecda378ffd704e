"""`bench`: speed and memory beside other programs."""
