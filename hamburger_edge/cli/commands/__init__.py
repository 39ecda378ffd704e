"""One module a command: its options, its examples and what it does.

A new command is a module with a `COMMAND` in it, named in `hamburger_edge/cli/parser.py`. What a command
needs beyond the core is imported inside its function.
"""
