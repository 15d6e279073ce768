"""The verbs of the command line, one module each: parse, call, format. Everything they decide is
decided elsewhere.
"""
