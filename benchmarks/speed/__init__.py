"""`bench`: speed and memory of our runtimes and of other programs on the same weights, prompts and threads.

plan         the options of a run, and the pairs to compare
bench        one run: build, load, measure in rotation, score, measure long answers
running      choose, open and rotate the programs of a run; record the skipped ones
process      a program in a separate process
ours         our runtimes as contenders
interleave   measure in rotation; medians, quartiles and paired ratios
curve        cost per token against answer length
prompts      the prompts to answer
shapes       bundles with random weights in a known shape
report       figures and tables
plots        plots
"""
