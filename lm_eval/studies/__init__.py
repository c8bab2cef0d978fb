"""Runs tasks under many settings, and reports how much scores and ranks depend on them."""
