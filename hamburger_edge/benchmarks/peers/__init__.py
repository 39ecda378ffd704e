"""Other programs and servers to compare with (`bench --peers`, `bench --serve`); only in a checkout.

programs    the list of programs
weights     the bundle's base weights in the programs' file formats
genai, llama_cpp, transformers   one adapter per program
serving     `bench --serve`: our server and llama-cpp-python's
"""
