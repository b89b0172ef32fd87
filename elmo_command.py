# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Entry point of the `elmo` console script.

Importing transformers_elmo imports transformers and torch, which takes seconds. The command parses its arguments first,
so `--help` and usage errors respond at once. This module is outside the package because it has to run before it.
"""

import importlib

parsing_arguments = False  # while True, transformers_elmo/__init__.py imports and registers nothing


def main() -> int:
    global parsing_arguments
    parsing_arguments = True
    try:
        from transformers_elmo.command import main

        return main(before_run=import_package)
    finally:
        parsing_arguments = False


def import_package():
    """Import transformers_elmo again, this time in full."""
    global parsing_arguments
    parsing_arguments = False
    importlib.reload(importlib.import_module("transformers_elmo"))
