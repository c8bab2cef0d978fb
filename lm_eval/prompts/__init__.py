"""A document becomes a prompt: templates, few-shot examples, chat turns."""
