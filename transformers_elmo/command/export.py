# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo export`: write a checkpoint for bilm-tf and AllenNLP, or as ONNX."""

import argparse
from pathlib import Path

from .arguments import add_checkpoint_argument


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Write a checkpoint in another format. bilm: the options.json and .hdf5 files
that bilm-tf and AllenNLP read, with vocab.txt and the softmax if the checkpoint
has them. onnx: model.onnx, with the configuration and the tokenizer; its
outputs are the logits of a tagger, or the vectors and all layers of any other
checkpoint, and are compared with the checkpoint's before it is saved."""
    parser.epilog = """\
examples:
  elmo export path/to/checkpoint -o for-allennlp
  elmo export path/to/tagger --format onnx -o tagger-onnx
"""
    add_checkpoint_argument(parser)
    parser.add_argument(
        "--format", choices=["bilm", "onnx"], default="bilm", help="format to write (default: %(default)s)"
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to create")


def run(arguments: argparse.Namespace) -> int:
    from ..checkpoints import load
    from ..convert.export import export_bilm
    from ..convert.onnx import export_onnx, import_onnxruntime
    from ..files import check_new_folder

    check_new_folder(arguments.output)  # before the checkpoint is loaded, or downloaded
    if arguments.format == "onnx":
        import_onnxruntime()
        model, tokenizer = load(arguments.checkpoint, with_classifier=True)
        export_onnx(model, tokenizer, arguments.output)
    else:
        model, tokenizer = load(arguments.checkpoint, with_lm_head=True)
        export_bilm(model, tokenizer, arguments.output)
    return 0
