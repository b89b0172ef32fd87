# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo quantize`: make a checkpoint smaller."""

import argparse

from .arguments import add_checkpoint_argument, path


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Write a copy of a checkpoint whose weights are int8 and bfloat16, a third of the
size of float32, and which loads like any other. Its vectors are compared with
those of the original before it is saved."""
    parser.epilog = """\
examples:
  elmo quantize default -o elmo-int8
  elmo quantize path/to/checkpoint -o elmo-int8
"""
    add_checkpoint_argument(parser)
    parser.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="folder to create")


def run(arguments: argparse.Namespace) -> int:
    from ..quantize import quantize_checkpoint

    quantize_checkpoint(arguments.checkpoint, arguments.output)
    return 0
