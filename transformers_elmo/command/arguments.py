# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Arguments that several verbs share, and types for numeric arguments."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from ..text import shortened


def add_checkpoint_argument(parser: argparse.ArgumentParser):
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="folder, name on the Hub, or 'default' for the one in the package"
    )


def add_text_arguments(parser: argparse._ActionsContainer):
    parser.add_argument(
        "--pretokenized", action="store_true", help="split lines at spaces only; the text is already tokenized"
    )
    parser.add_argument(
        "--column", default="text", help="column of .jsonl and .parquet files to read (default: %(default)s)"
    )
    parser.add_argument(
        "--encoding-errors",
        choices=["strict", "replace"],
        default="strict",
        help="stop at bytes that are not UTF-8, or replace them (default: %(default)s)",
    )


def add_card_arguments(parser: argparse._ActionsContainer):
    parser.add_argument("--language", metavar="CODE", type=card_name, help="language for the model card, e.g. en or pt")
    parser.add_argument("--license", metavar="NAME", type=card_name, help="license for the model card, e.g. apache-2.0")


def add_push_arguments(parser: argparse._ActionsContainer):
    parser.add_argument("--private", action="store_true", help="make the repository private if it is created")
    parser.add_argument("--revision", metavar="BRANCH", help="branch to push to (default: main)")
    parser.add_argument("--message", metavar="TEXT", help="commit message")


def path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must be a path, got an empty one")
    return Path(text)


def card_name(text: str) -> str:
    if not re.fullmatch(r"[\w.+-]+", text):
        raise argparse.ArgumentTypeError(f"must be one name as the Hub spells it, got {shortened(text, 40)!r}")
    return text


def positive_int(text: str) -> int:
    return parse_number(text, int, lambda number: 1 <= number < 1 << 31, "a whole number, at least 1 and below 2^31")


def positive_float(text: str) -> float:
    return parse_number(text, float, lambda number: 0 < number < float("inf"), "a number above 0")


def probability(text: str) -> float:
    return parse_number(text, float, lambda number: 0 <= number < 1, "a number, at least 0 and below 1")


def parse_number(text: str, parse: Callable, is_valid: Callable, expected: str):
    try:
        number = parse(text)
        if is_valid(number):
            return number
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be {expected}, got {shortened(text, 40)}")
