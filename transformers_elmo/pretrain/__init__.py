# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Pretraining: from raw text to the two language models of an ELMo. `job.py` is the front door."""
