"""Pretraining: raw text to the two language models of an ELMo. `job.py` is its front door."""
