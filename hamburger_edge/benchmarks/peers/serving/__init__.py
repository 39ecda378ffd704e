"""`bench --serve`: compare our server with llama-cpp-python's, with one client and with several.

servers        start each server in a separate process, on a free port
clients        send requests and measure the answers
server_bench   one run: each server gets the same requests, in rotation
server_report  figures and tables
"""
