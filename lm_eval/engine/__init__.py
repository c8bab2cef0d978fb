"""Requests become answers: what is asked is planned, asked once, and kept."""
