"""`bench --prompts`: measure whole requests, from the prompt to the end of the answer.

prompts         read the prompt file and encode the requests
request_plan    the options of a run, and the pairs to compare
our_answers     our runtimes as contenders
request_bench   one run: each program answers each request, in rotation
request_report  figures and tables
conversation    the prompts as turns of one conversation: what a token costs by its length
"""
