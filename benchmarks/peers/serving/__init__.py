"""`bench --serve`: our server beside llama.cpp's, asked by one and by many clients.

servers     each in a process of its own, on a port of its own
clients     who asks, and what they measure
bench       one run: everybody answers everything, in turns
report      figures and tables
"""
