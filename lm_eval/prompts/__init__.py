"""Turns documents into prompts: templates, prompt formats, few-shot examples and chat messages."""
