"""What answers are worth: asked, judged, compared in pairs, recommended. `eval`, `tune` and `bench` use it.

asking         requests at every setting in turn, and the recommendation
kept_answers   answers in a file, so that a stopped evaluation goes on
judges         one score an answer, beside the answer that was given
checks         prompts, and answers that a rule can check
recommending   `eval --recommend`; telling writes its result into a bundle or checkpoint
quality        `eval`: every model answers every prompt at every confidence, and a plain base reads it
models         what is evaluated, and that base; reading, its opinion of each token
figures, report, tables, plots   what a reader sees
machine, pictures   this machine as facts, and drawing; `bench` uses them too

Imports core, runtimes and models; no other room's commands.
"""
