"""`bench`: speed and memory of our runtimes and of other programs on the same weights, prompts and threads.

speed_plan   the prompts and options of a run, and the pairs to compare
speed_bench  one run: build, load, measure in rotation, score, measure long answers
running      choose, open and rotate the programs of a run; record the skipped ones
process      a program in a separate process
our_speed    our runtimes as contenders
interleave   measure in rotation; medians, quartiles and paired ratios
curve        cost per token against answer length
shapes       bundles with random weights in a known shape
bench_report the part that all reports of compared programs have
speed_report, speed_plots   figures, tables and plots
"""
