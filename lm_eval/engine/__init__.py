"""Obtains the model's answers to requests: looks them up in the store, sends the rest to the model.

Also contains the batching of requests with shared prefixes (`plan.py`) and the progress display.
"""
