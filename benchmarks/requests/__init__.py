"""`bench --prompts`: whole requests, from the prompt to the end of the answer, beside other programs.

prompts     the file of prompts, and what is asked of a model
plan        what is asked for, and which programs are compared
ours        our runtimes as contenders
checking    which answers are valid, and which are right
bench       one run: everybody answers every request, in turns
report      figures and tables
"""
