# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo export`: write a checkpoint in the format of bilm-tf and AllenNLP."""

import argparse
from pathlib import Path

from .arguments import add_checkpoint_argument


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Write a checkpoint as the options.json and .hdf5 files that bilm-tf and
AllenNLP read, with vocab.txt and the softmax if the checkpoint has them."""
    parser.epilog = """\
examples:
  elmo export path/to/checkpoint -o for-allennlp
"""
    add_checkpoint_argument(parser)
    parser.add_argument("--format", choices=["bilm"], default="bilm", help="format to write (default: %(default)s)")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to create")


def run(arguments: argparse.Namespace) -> int:
    from ..checkpoints import load
    from ..convert.export import export_bilm
    from ..files import check_new_folder

    check_new_folder(arguments.output)  # before the checkpoint is loaded, or downloaded
    model, tokenizer = load(arguments.checkpoint, with_lm_head=True)
    export_bilm(model, tokenizer, arguments.output)
    return 0
