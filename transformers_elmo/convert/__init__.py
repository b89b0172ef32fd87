"""Conversion: released weights in, weights out, checkpoints to the Hub. `job.py` is its front door."""
