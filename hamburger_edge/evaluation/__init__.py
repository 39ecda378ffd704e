"""Evaluate answers: generate, judge, compare in pairs, recommend. `eval`, `tune` and `bench` use it.

asking         answers to each request at every setting, with scores and times
kept_answers   a file of answers, so that a stopped evaluation can resume
judges         a score for each answer, relative to the expected answer
checks         prompts, and rules that check answers
recommending   `eval --recommend`: the fastest setting without loss, stored in a bundle or checkpoint
quality        `eval`: every model answers every prompt at every confidence, and a plain base judges
models         the models to evaluate, and the plain base
base_judge     the plain base's log-likelihood and choice for each token
figures, quality_report   the results as numbers, and as data and text
machine        facts about this machine; `bench` uses them too

Imports core, runtimes and models, but no commands of other packages.
"""
