"""From an app's own examples to its own model.

    examples --> encoding --> tune: base --> scored answers --> graft --> checkpoint, bundle
                                                                            |
                              evaluation (judges) --> recommendation <------+

Imports core, models, export, evaluation and the runtimes; nothing imports it but the command line.
"""
