# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo push`: push a checkpoint to the Hub."""

import argparse
import sys
from pathlib import Path

from .arguments import add_push_arguments


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Push the folder of a checkpoint to the Hub in one commit, with a new model card
if the folder has none."""
    parser.epilog = """\
examples:
  elmo push my-elmo me/my-elmo
  elmo push my-elmo me/my-elmo --private --revision v2 --message "Train longer"
"""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of a checkpoint")
    parser.add_argument(
        "repo", metavar="REPO", help="repository on the Hub, e.g. me/my-elmo; created if it does not exist"
    )
    add_push_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    push_folder(arguments.folder, arguments.repo, arguments)
    return 0


def push_folder(folder: Path, repo: str, arguments: argparse.Namespace):
    """Push with the options of `add_push_arguments`, and print the address of the commit."""
    from huggingface_hub.utils import enable_progress_bars

    from ..convert.push import push

    on_terminal = sys.stderr.isatty()
    if on_terminal:
        enable_progress_bars()  # silence_libraries() disables them
    try:
        address = push(folder, repo, private=arguments.private, revision=arguments.revision, message=arguments.message)
    except BaseException:
        if on_terminal:
            print(file=sys.stderr)  # end the line of an unfinished progress bar
        raise
    print(f"pushed       {address}")
