"""Assembly: a checkpoint and its base become a bundle without PyTorch.

An export can keep what it traced beside its checkpoint, in the folder `assembly`: the graphs, the manifest,
and a recipe of weights.bin. With these, `assemble` writes the same bundle, file by file.

recipe     where each tensor of weights.bin comes from
parts      after an export: write the folder (needs PyTorch)
weights    a checkpoint's weights by name, as numpy arrays
assemble   from recipe and weights to the bundle
"""
