"""Train a model for one task from an app's examples.

    examples --> encoding --> tune: base (with --merge --> scored answers --> graft) --> checkpoint, bundle
                                                                                            |
                              evaluation (judges) --> recommendation <----------------------+

Imports core, models, export, evaluation and the runtimes; only the command line imports it.
"""
