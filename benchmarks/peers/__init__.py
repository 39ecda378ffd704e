"""Other programs as contenders of `bench --peers`, and other servers; run from a checkout.

programs    the list of them
weights     the bundle's base weights in the forms that they read
genai, llama_cpp, transformers   one adapter a program
serving     `bench --serve`: our server beside llama-cpp-python's
"""
