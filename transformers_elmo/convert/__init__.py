# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Conversion of released ELMos to checkpoints and back, and pushing to the Hub. `job.py` is the front door."""
