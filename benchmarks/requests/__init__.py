"""`bench --prompts`: measure whole requests, from the prompt to the end of the answer.

prompts     read the prompt file and encode the requests
plan        the options of a run, and the pairs to compare
ours        our runtimes as contenders
bench       one run: each program answers each request, in rotation
report      figures and tables
"""
