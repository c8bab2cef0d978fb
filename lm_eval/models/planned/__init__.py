"""What servers and inference engines have in common: they get all requests of a type at once.

`model.PlannedLM` encodes the requests, plans prompts and windows from them, and reports the answers
as they arrive. A subclass sends them to a server or an engine.
"""
