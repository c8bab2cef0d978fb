"""Dialects: what each kind of server is sent, and what its replies mean. One module per kind."""
