"""Embedding: text to vectors. `job.py` is its front door."""

LAYERS = ("mix", "all", "words", "top")
