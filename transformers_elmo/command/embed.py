# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo embed`: compute contextual vectors for the words of a text."""

import argparse
import os
import stat
import sys
from functools import partial

from ..batching import BATCH_WORDS
from ..embed import LAYERS
from ..files import check_new_file, file_status
from ..text import STDIN, display_name
from .arguments import add_checkpoint_argument, add_text_arguments, positive_int


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Compute contextual vectors for the words of a text with one sentence per line,
or per row of a .jsonl or .parquet file. The .npz file contains one array per
sentence, with one row per word, named by the index of the sentence ('0', '1',
...), and 'words', the words of all sentences as JSON."""
    parser.epilog = """\
examples:
  elmo embed default text.txt -o vectors.npz
  elmo embed default tokens.txt.gz -o vectors.npz --pretokenized --layer all
  zcat text.txt.gz | elmo embed path/to/checkpoint -o vectors.npz --device cuda
"""
    add_checkpoint_argument(parser)
    parser.add_argument(
        "input",
        metavar="INPUT",
        nargs="?",
        default=STDIN,
        help="plain text, .gz, .xz, .jsonl or .parquet file, or - for standard input (default: -)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help=".npz file to write")
    add_text_arguments(parser)
    parser.add_argument(
        "--layer",
        default="mix",
        choices=LAYERS,
        help="the checkpoint's mix of layers, all layers, the context-free word vectors, or the top LSTM layer "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--batch-words",
        metavar="N",
        type=positive_int,
        default=BATCH_WORDS,
        help="words per batch (default: %(default)s)",
    )
    parser.add_argument("--device", default="cpu", help="torch device, e.g. cuda (default: %(default)s)")


def check_arguments(arguments: argparse.Namespace):
    source, output = display_name(arguments.input), display_name(arguments.output)
    input_status = None if arguments.input == STDIN else file_status(arguments.input)
    if arguments.input != STDIN and (input_status is None or stat.S_ISDIR(input_status.st_mode)):
        problem = "does not exist" if input_status is None else "is a folder"
        raise ValueError(f"INPUT must be a file, or - for standard input; {source} {problem}.")
    if not arguments.output.endswith(".npz"):
        raise ValueError(f"--output must end in .npz, got {output}.")
    check_new_file(arguments.output)
    output_status = file_status(arguments.output)
    if output_status and input_status and os.path.samestat(output_status, input_status):
        raise ValueError(f"--output must be another file than INPUT; {output} would be replaced: choose another name.")


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from ..checkpoints import load
    from ..embed.job import embed, read_sentences, write_npz

    sentences = read_sentences(
        arguments.input,
        pretokenized=arguments.pretokenized,
        column=arguments.column,
        encoding_errors=arguments.encoding_errors,
    )
    model, tokenizer = load(arguments.checkpoint)
    try:
        model.to(arguments.device)
        if model.device.type == "meta":
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError, ImportError) as error:  # which one depends on how torch was built
        raise ValueError(f"--device must be a torch device of this machine, got {arguments.device}: {error}") from error
    embedded = embed(model, tokenizer, sentences, layer=arguments.layer, batch_words=arguments.batch_words)
    on_terminal = sys.stderr.isatty()
    total = count_lines(arguments.input) if on_terminal else None
    with tqdm(embedded, total=total, unit=" sentences", disable=not on_terminal) as bar:
        num_sentences, num_words = write_npz(os.path.realpath(arguments.output), bar)  # where a link points to
    counts = [f"{n:,} {unit}{'s' * (n != 1)}" for n, unit in ((num_sentences, "sentence"), (num_words, "word"))]
    print(f"{', '.join(counts)}: {display_name(arguments.output)}")
    return 0


def count_lines(path: str) -> int | None:
    """Count the lines of a plain file for the progress bar; return None for other files and standard input."""
    if not os.path.isfile(path) or path.endswith((".gz", ".xz", ".parquet")):
        return None
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b""))
