"""`eval`: what merging and quantization cost in quality.

checks       prompts, and answers that can be checked
models       what is evaluated, and the plain base that judges
evaluation   every model answers every prompt at every confidence
spreading    ... asked by the workers of a cluster
judging      one answer, and the judge's opinion of each of its tokens
figures      answers, counted
report, tables, plots   what a reader sees
lm_eval_adapter         a bundle as a model of EleutherAI's lm-eval
"""
