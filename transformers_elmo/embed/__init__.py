# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Embedding: text to vectors. `job.py` is the front door."""

LAYERS = ("mix", "all", "words", "top")
