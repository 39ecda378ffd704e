"""Other programs as contenders of `bench`.

contender   what every program has to be able to do, and the list of peers
weights     the bundle's base weights in the forms that peers read
genai, llama_cpp, transformers   one adapter a program
"""
