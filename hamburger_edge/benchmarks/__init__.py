"""`bench`: measure a bundle's speed on this machine, optionally next to other programs.

    cli bench --> speed/speed_plan --> speed/speed_bench --> speed/process   a process for each program
                                      +--> speed/interleave   A B C A B C ...: medians and paired ratios
                                      +--> speed/curve        cost per token against answer length
                                      +--> speed/speed_report, speed/speed_plots   tables and plots
    --prompts --> requests/request_bench   whole requests in the same processes, also under a JSON schema
    --peers, --serve --> peers/            other programs on the same weights

`contender` defines the interface of a measured program. `weight_bytes` counts the weight bytes that a step
reads. `requests` and `peers` are not part of the wheel. The package imports core, evaluation, runtimes,
models and export. Only the command line imports it.
"""
