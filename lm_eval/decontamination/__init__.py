"""The published tools that remove test documents from training text."""
