"""Small uses of the package in the shapes that public projects have, written by us.

Each function stands for a kind of project and runs under the published harness as well.
`outcomes.json` contains what each returned there and here; `record.py` writes it, and
`tests/test_uses.py` compares. docs/compatibility.md lists the projects.
"""
