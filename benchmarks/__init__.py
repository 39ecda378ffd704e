"""`bench`: how fast a bundle is on this machine, beside other programs where a checkout has them.

    cli bench --> speed/plan --> speed/bench --> speed/process   each program in a process of its own
                                      +--> speed/interleave   A B C A B C ..., medians, ratios of pairs
                                      +--> speed/curve        cost against length
                                      +--> speed/report, speed/plots   tables and pictures
    --prompts --> requests/bench      whole requests in the same processes, also under a JSON schema
    --peers, --serve --> peers/       other programs on the same weights; in a checkout alone, in no wheel

contender   the interface of a measured program
Shared: `weight_bytes` (what a step reads), `made_once` (files kept in the cache folder). Imports core,
evaluation, runtimes, models and export; only the command line imports it.
"""
