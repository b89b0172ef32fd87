# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The entry point of the `elmo` command."""

from transformers_elmo.command import main

__all__ = ["main"]
