"""Requests become answers: put to the model together, laid out so that prefixes are shared."""
