# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo pretrain`: train an ELMo on raw text."""

import argparse
import dataclasses
import os

from ..pretrain.recipe import CACHE, RECIPES, SIZES, check_initial_model
from ..text import display_name
from .arguments import add_card_arguments, add_text_arguments, path, positive_float, positive_int, probability

RECIPE_OPTIONS = ("learning_rate", "dropout", "rows", "window", "negative_samples", "epochs")


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Train the forward and backward language models of an ELMo on raw text, from
scratch or from a checkpoint. The text is split into sentences and words once
and cached; its most frequent words become the vocabulary. Ctrl-C saves a
checkpoint, and the same command with --resume continues from it exactly."""
    parser.epilog = """\
examples:
  elmo pretrain 'text/*.txt.gz' -o my-elmo
  elmo pretrain 'text/*.txt.gz' -o my-elmo --resume
  elmo pretrain law.txt -o law-elmo --init my-elmo
  elmo pretrain wiki.txt -o wiki-elmo --pretokenized --drop-tokens '<unk>'
  torchrun --nproc_per_node 4 -m transformers_elmo.command \\
      pretrain 'text/*.txt.gz' -o my-elmo
"""
    parser.add_argument(
        "text", metavar="TEXT", nargs="+", help="plain text, .gz, .xz, .jsonl or .parquet files, or glob patterns"
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="folder to create")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in DIR")
    parser.add_argument(
        "--held-out", metavar="FILE", nargs="+", help="text to evaluate on (default: a part of TEXT is held out)"
    )

    group = parser.add_argument_group("text")
    add_text_arguments(group)
    group.add_argument("--one-sentence-per-line", action="store_true", help="treat each line as one sentence")
    group.add_argument(
        "--drop-tokens", metavar="TOKEN", nargs="+", default=[], help="tokens to drop from the text, e.g. <unk>"
    )
    group.add_argument(
        "--cache", metavar="DIR", type=path, default=CACHE, help="folder for the tokenized text (default: %(default)s)"
    )

    group = parser.add_argument_group("model")
    group.add_argument(
        "--init",
        metavar="CHECKPOINT",
        help="start from this checkpoint; if it has no language-model head, add a new one",
    )
    group.add_argument("--size", choices=SIZES, help="size of a new model (default: mini)")
    group.add_argument(
        "--config", metavar="FILE", type=path, help="JSON file of ElmoConfig fields that override those of the size"
    )
    group.add_argument(
        "--vocab", metavar="FILE", type=path, help="vocab.txt, most frequent words first (default: built from TEXT)"
    )
    group.add_argument(
        "--vocab-size",
        metavar="N",
        type=positive_int,
        help="maximum number of words in a vocabulary built from TEXT (default: 40000)",
    )
    group.add_argument(
        "--min-count",
        metavar="N",
        type=positive_int,
        help="minimum number of occurrences of a word in that vocabulary (default: 2)",
    )

    group = parser.add_argument_group("training")
    group.add_argument(
        "--recipe",
        choices=RECIPES,
        default="default",
        help="preset of optimizer, schedule and batch size; 'paper' is bilm-tf's (default: %(default)s)",
    )
    recipe = "(default: the recipe's)"
    group.add_argument("--learning-rate", metavar="X", type=positive_float, help=f"peak learning rate {recipe}")
    group.add_argument("--dropout", metavar="P", type=probability, help=f"dropout probability {recipe}")
    group.add_argument("--rows", metavar="N", type=positive_int, help=f"rows of text per batch and process {recipe}")
    group.add_argument(
        "--window",
        metavar="N",
        type=positive_int,
        help=f"words per row and step; backpropagation is truncated there {recipe}",
    )
    group.add_argument(
        "--negative-samples", metavar="N", type=positive_int, help=f"negative samples of the sampled softmax {recipe}"
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument("--epochs", metavar="X", type=positive_float, help=f"passes over the text {recipe}")
    length.add_argument("--steps", metavar="N", type=positive_int, help="optimizer steps, instead of --epochs")
    group.add_argument(
        "--gradient-accumulation",
        metavar="N",
        type=positive_int,
        default=1,
        help="batches per optimizer step (default: %(default)s)",
    )
    group.add_argument("--bf16", action="store_true", help="train in bfloat16 mixed precision")
    group.add_argument("--cpu", action="store_true", help="train on the CPU even if there is a GPU")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="random seed (default: %(default)s)")

    group = parser.add_argument_group("logging and saving")
    for verb, what in (("log", "log the loss"), ("eval", "evaluate on held-out text"), ("save", "save a checkpoint")):
        group.add_argument(
            f"--{verb}-every",
            metavar="STEPS",
            type=positive_int,
            default=50 if verb == "log" else 1000,
            help=f"{what} at this interval (default: %(default)s)",
        )
    group.add_argument(
        "--report-to", metavar="NAME", default="none", help="Trainer integration, e.g. tensorboard (default: none)"
    )
    group.add_argument("--half", action="store_true", help="save the final weights in float16")

    add_card_arguments(parser.add_argument_group("model card"))


def check_arguments(arguments: argparse.Namespace):
    check_initial_model(arguments.init, arguments.size, arguments.config)
    for token in arguments.drop_tokens:
        if os.path.isfile(token):
            raise ValueError(
                f"--drop-tokens takes all words up to the next option, but {display_name(token)} is a file: put TEXT "
                "before --drop-tokens."
            )


def run(arguments: argparse.Namespace) -> int:
    from ..pretrain.corpus import Splitting
    from ..pretrain.job import InitialModel, Texts, pretrain_from_texts
    from ..pretrain.recipe import Settings

    texts = Texts(
        files=arguments.text,
        held_out=arguments.held_out,
        splitting=Splitting(
            pretokenized=arguments.pretokenized,
            one_sentence_per_line=arguments.one_sentence_per_line,
            drop_tokens=tuple(arguments.drop_tokens),
        ),
        column=arguments.column,
        encoding_errors=arguments.encoding_errors,
        cache=arguments.cache,
    )
    initial_model = InitialModel(
        checkpoint=arguments.init,
        size=arguments.size,
        config_file=arguments.config,
        vocab_file=arguments.vocab,
        vocab_size=arguments.vocab_size,
        min_count=arguments.min_count,
    )
    overrides = {name: getattr(arguments, name) for name in RECIPE_OPTIONS if getattr(arguments, name) is not None}
    settings = Settings(
        output=str(arguments.output),
        recipe=dataclasses.replace(RECIPES[arguments.recipe], **overrides),
        steps=arguments.steps or 0,
        gradient_accumulation=arguments.gradient_accumulation,
        bf16=arguments.bf16,
        cpu=arguments.cpu,
        seed=arguments.seed,
        log_every=arguments.log_every,
        eval_every=arguments.eval_every,
        save_every=arguments.save_every,
        report_to=arguments.report_to,
        save_half=arguments.half,
        language=arguments.language,
        license=arguments.license,
        command=arguments.command_line,
    )
    completed = pretrain_from_texts(texts, initial_model, settings, resume=arguments.resume)
    return 0 if completed else 130
