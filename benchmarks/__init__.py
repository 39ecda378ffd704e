"""`bench`: measure a bundle's speed on this machine, optionally next to other programs.

    cli bench --> speed/plan --> speed/bench --> speed/process   each program in a separate process
                                      +--> speed/interleave   A B C A B C ...: medians and paired ratios
                                      +--> speed/curve        cost per token against answer length
                                      +--> speed/report, speed/plots   tables and plots
    --prompts --> requests/bench      whole requests in the same processes, also under a JSON schema
    --peers, --serve --> peers/       other programs on the same weights; not part of the wheel

`contender` defines the interface of a measured program. `weight_bytes` counts the weight bytes that a step
reads. The package imports core, evaluation, runtimes, models
and export. Only the command line imports it.
"""
