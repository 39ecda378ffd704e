"""Calls of an app's functions as the answers of a model.

tools (JSON, Python) --catalogue--> Catalogue --call_automaton--> byte automaton --CallGrammar--> tokens
calls <--compact_form--> "HassTurnOn area kitchen; domain light"
"""
