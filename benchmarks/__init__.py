"""Measuring a bundle: how fast it is beside other programs (`bench`), and what that costs (`eval`).

    cli_bench --> bench --> bench_ours   our runtimes through the engine      --+
                    |                                                          +--> Contender
                    +----> peers, peers_*   one adapter a peer program        --+
                    |
                    +----> interleave   A B C A B C ..., medians, quartiles, ratios of pairs
                    +----> machine      processor, versions, memory bandwidth
                    +----> bench_report, bench_plots   what a reader sees

    cli_eval  --> eval*   quality of what is said, against plain decoding

Imports core, runtimes, models and export; nothing imports it but the command line.
"""
