"""`bench`: speed and memory of our runtimes beside other programs, on the same weights, prompts and threads.

plan         what is asked for, and which programs are compared
bench        one run: build, load, measure in turns, measure along a long answer, score
running      who takes part, who is out and why, and whose turn it is
process      a program in a process of its own
ours         our runtimes as contenders
interleave   measuring in turns, and the statistics of it
curve        what a token costs as an answer grows
prompts, shapes   what is answered; bundles of random weights at a known shape
report, plots     figures, tables, pictures
"""
