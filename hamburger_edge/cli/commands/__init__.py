"""The commands, one module each, with options, examples and implementation.

A new command is a module with a `COMMAND`, listed in `hamburger_edge/cli/parser.py`. Its functions import
optional dependencies when they run.
"""
