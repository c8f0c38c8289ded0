"""`python -m cubepy check`: whether a GPU does what the language and the library say, for people
whose GPU nobody has tried yet. It writes one file that can be sent.
"""
