"""Measuring a bundle: how fast it is beside other programs (`bench`).

    cli bench --> speed/plan --> speed/bench --> speed/process   each program in a process of its own
                                      |               |
                                      |               +--> speed/ours   our runtimes, as an app drives them
                                      |               +--> peers/*      other programs on the same weights
                                      +--> speed/interleave   A B C A B C ..., medians, ratios of pairs
                                      +--> speed/curve        cost against length
                                      +--> speed/report, speed/plots   what a reader sees

    cli bench --prompts --> requests/bench --> speed/running   the same processes, in turns
                                      +--> requests/ours, peers/*   whole requests, also under a JSON schema
                                      +--> requests/checking, requests/report   what a reader sees

Shared: `weight_bytes` (what a step reads), `made_once` (files kept in the cache folder). Imports core,
evaluation, runtimes, models and export; nothing
imports it but the command line.
"""
