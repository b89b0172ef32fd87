"""The `elmo` command."""

import argparse
import dataclasses
import io
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import huggingface_hub.utils.logging
from tqdm import tqdm
from transformers.utils import logging

from ..checkpoints import has_lm_head, load_config, load_model, load_tokenizer
from ..convert.export import export_bilm
from ..convert.job import check_output, convert
from ..convert.push import check_access, push
from ..convert.releases import RELEASES, download_release, find_release
from ..convert.sources import Given
from ..embed import LAYERS
from ..embed.job import embed, write_npz
from ..pretrain.corpus import Splitting
from ..pretrain.job import InitialModel, Texts, pretrain_from_texts
from ..pretrain.recipe import CACHE, RECIPES, SIZES, Recipe, Settings


class UserError(Exception):
    """What the user can mend, in one sentence."""


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    arguments.line = sys.argv[1:] if argv is None else argv
    clear_away_when_told_to_stop()
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print("elmo: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone, as `elmo info X | head -1` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (UserError, OSError, ValueError, RuntimeError) as error:
        print(f"elmo: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


def clear_away_when_told_to_stop():
    """Have the signals that end a program raise, so that half-made files are removed on the way out."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup stays nohup
            signal.signal(number, lambda got, _: sys.exit(128 + got))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="elmo", description="ELMo for transformers: contextual word vectors.")
    top.add_argument("--version", action="version", version=f"transformers-elmo {version('transformers-elmo')}")
    verbs = top.add_subparsers(metavar="VERB", required=True)

    verb = verbs.add_parser("info", help="show what a checkpoint is", description="Show what a checkpoint is.")
    verb.add_argument("checkpoint", help="folder, name on the Hub, or default")
    verb.set_defaults(run=info)

    verb = verbs.add_parser(
        "embed",
        help="turn text into vectors",
        description="Turn text into vectors: a line is a sentence, and line N of the input becomes array 'N' of the "
        ".npz file, counted from 0, with a row for each word. 'words' holds the words as JSON.",
    )
    verb.add_argument("checkpoint", help="folder, name on the Hub, or default")
    verb.add_argument("input", nargs="?", default="-", help="text file, a sentence a line; - for standard input")
    verb.add_argument("-o", "--output", required=True, help=".npz file to write")
    verb.add_argument("--words", action="store_true", help="lines are words already, separated by spaces")
    verb.add_argument("--layer", default="mix", choices=LAYERS, help="default: %(default)s")
    verb.add_argument("--batch-size", type=positive, default=32, help="sentences at once, default: %(default)s")
    verb.add_argument("--device", default="cpu", help="torch device, default: %(default)s")
    verb.set_defaults(run=run_embed)

    verb = verbs.add_parser(
        "convert",
        help="turn a released ELMo into a checkpoint",
        description="Turn a released ELMo into a checkpoint that transformers loads. What SOURCE is, is found out: "
        "bilm-tf or AllenNLP weights (options.json and .hdf5), a training checkpoint of bilm-tf, a folder of "
        "ELMoForManyLangs, a model.tar.gz of AllenNLP, a TensorFlow Hub module; as folder, file or zip. The result is "
        "compared with its source before it is written.",
    )
    verb.add_argument("source", metavar="SOURCE", nargs="?", type=Path, help="file or folder")
    verb.add_argument("-o", "--output", metavar="DIR", type=Path, help="folder to make")
    verb.add_argument("--name", help="a known release instead of SOURCE; its files are kept in HF_HOME/elmo")
    verb.add_argument("--list", action="store_true", help="show the known releases")
    verb.add_argument(
        "--options", metavar="FILE", type=Path, help="options.json, if it does not lie beside the weights"
    )
    verb.add_argument("--vocab", metavar="FILE", type=Path, help="vocab.txt, if it does not lie beside the weights")
    verb.add_argument(
        "--softmax", metavar="FILE", type=Path, help="hdf5 file of the softmax, if it does not lie beside the weights"
    )
    verb.add_argument("--language", help="for the model card, as in en or pt")
    verb.add_argument("--license", help="for the model card, as in apache-2.0")
    verb.add_argument("--push-to-hub", metavar="REPO", help="push the result to this repository on the Hub")
    add_push_arguments(verb)
    verb.set_defaults(run=run_convert)

    add_pretrain(verbs)

    verb = verbs.add_parser(
        "export",
        help="write a checkpoint in another format",
        description="Write a checkpoint as options.json and .hdf5 files that bilm-tf and AllenNLP read.",
    )
    verb.add_argument("checkpoint", help="folder, name on the Hub, or default")
    verb.add_argument("--format", choices=["bilm"], default="bilm", help="default: %(default)s")
    verb.add_argument("-o", "--output", type=Path, required=True, help="folder to make")
    verb.set_defaults(run=run_export)

    verb = verbs.add_parser(
        "push", help="push a checkpoint to the Hub", description="Push the folder of a checkpoint to the Hub."
    )
    verb.add_argument("folder", type=Path, help="folder of a checkpoint")
    verb.add_argument("repo", help="repository on the Hub, as in me/my-elmo; made if there is none")
    add_push_arguments(verb)
    verb.set_defaults(run=run_push)
    return top


def add_pretrain(verbs):
    verb = verbs.add_parser(
        "pretrain",
        help="train an ELMo on raw text",
        description="Train the two language models of an ELMo on raw text, from nothing or from a checkpoint. The text "
        "is split into sentences and words once and kept; the most frequent words become the vocabulary. Ctrl-C saves "
        "a checkpoint, and the same command with --resume goes on from it exactly. On several processors: torchrun "
        "--nproc_per_node N -m transformers_elmo.command pretrain ...",
    )
    verb.add_argument("text", metavar="TEXT", nargs="+", help="text, .gz, .xz, .jsonl or .parquet files, or globs")
    verb.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to make")
    verb.add_argument("--resume", action="store_true", help="go on from the last checkpoint in DIR")
    verb.add_argument(
        "--held-out", metavar="FILE", nargs="+", help="text to measure on; else a part of TEXT is held out"
    )

    group = verb.add_argument_group("text")
    group.add_argument("--pretokenized", action="store_true", help="words are separated by spaces already")
    group.add_argument("--one-sentence-per-line", action="store_true", help="do not split lines into sentences")
    group.add_argument(
        "--drop-tokens", metavar="TOKEN", nargs="+", default=[], help="tokens to drop from the text, e.g. <unk>"
    )
    group.add_argument("--column", default="text", help="of .jsonl and .parquet files, default: %(default)s")
    group.add_argument(
        "--encoding-errors", choices=["strict", "replace"], default="strict", help="default: %(default)s"
    )
    group.add_argument(
        "--cache", metavar="DIR", type=Path, default=CACHE, help="where split text is kept, default: %(default)s"
    )

    group = verb.add_argument_group("model")
    group.add_argument("--init", metavar="CHECKPOINT", help="start from it, with its softmax or with a new one")
    group.add_argument("--size", choices=SIZES, help="of a new model, default: mini")
    group.add_argument(
        "--config", metavar="FILE", type=Path, help="JSON with fields of ElmoConfig, to overrule the size"
    )
    group.add_argument("--vocab", metavar="FILE", type=Path, help="vocab.txt, the most frequent words first")
    group.add_argument("--vocab-size", metavar="N", type=positive, default=40_000, help="words, default: %(default)s")
    group.add_argument("--min-count", metavar="N", type=positive, default=2, help="of a word, default: %(default)s")

    group = verb.add_argument_group("training")
    group.add_argument("--recipe", choices=RECIPES, default="default", help="default: %(default)s; paper: bilm-tf's")
    group.add_argument("--learning-rate", metavar="X", type=positive_number)
    group.add_argument("--dropout", metavar="X", type=share)
    group.add_argument("--rows", metavar="N", type=positive, help="of text that a process reads at once")
    group.add_argument("--window", metavar="N", type=positive, help="words of a row in a step")
    group.add_argument("--negative-samples", metavar="N", type=positive)
    group.add_argument("--epochs", metavar="X", type=positive_number)
    group.add_argument("--steps", metavar="N", type=positive, help="instead of --epochs")
    group.add_argument("--gradient-accumulation", metavar="N", type=positive, default=1)
    group.add_argument("--bf16", action="store_true")
    group.add_argument("--cpu", action="store_true", help="even if there is a GPU")
    group.add_argument("--seed", metavar="N", type=int, default=0)
    group.add_argument("--log-every", metavar="STEPS", type=positive, default=50)
    group.add_argument("--eval-every", metavar="STEPS", type=positive, default=1000)
    group.add_argument("--save-every", metavar="STEPS", type=positive, default=1000)
    group.add_argument("--report-to", default="none", help="tensorboard or another reporter of Trainer")
    group.add_argument(
        "--half", dest="save_half", action="store_true", help="store the final weights in half precision"
    )
    group.add_argument("--language", help="for the model card, as in en or pt")
    group.add_argument("--license", help="for the model card, as in apache-2.0")
    verb.set_defaults(run=run_pretrain)


def add_push_arguments(verb: argparse.ArgumentParser):
    verb.add_argument("--private", action="store_true", help="make a private repository")
    verb.add_argument("--revision", help="branch to push to, default: main")
    verb.add_argument("--message", help="commit message")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def positive_number(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return number


def share(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, got {text}")
    return number


def quiet():
    """What transformers would say of its own is not for the terminal."""
    huggingface_hub.utils.logging.set_verbosity_error()
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load(checkpoint: str, with_lm_head: bool = False):
    """A checkpoint's model and tokenizer, quietly; as a language model where it is one and that is asked for."""
    quiet()
    config = load_config(checkpoint)
    model = load_model(checkpoint, config, with_lm_head=with_lm_head and has_lm_head(config))
    return model, load_tokenizer(checkpoint)


def info(arguments: argparse.Namespace) -> int:
    model, tokenizer = load(arguments.checkpoint)
    config = model.config
    inputs = [config.inputs]
    if "characters" in config.inputs:
        filters = " ".join(f"{width}x{number}" for width, number in config.char_filters)
        inputs += [
            f"{config.char_vocab_size - 1} characters of {config.char_embedding_dim}, "
            f"{config.max_characters_per_token} to a word",
            f"filters {filters} ({config.num_filters}), {config.char_activation}, {config.num_highway_layers} highway",
        ]
    clips = [
        f"{name} {clip:g}" for name, clip in (("cells", config.cell_clip), ("outputs", config.projection_clip)) if clip
    ]
    lstm = (
        f"{config.num_hidden_layers} layers x 2 directions, {config.lstm_dim} cells"
        + (f" projected to {config.projection_dim}" if config.projection_dim is not None else "")
        + (", skip connections" if config.use_skip_connections else "")
        + (f", clipped ({', '.join(clips)})" if clips else "")
    )
    words = tokenizer.vocab_size - len(tokenizer.all_special_tokens)
    vocabulary = f"{words:,} words and {len(tokenizer.all_special_tokens)} special tokens" if words > 0 else "none"
    weights = ", ".join(f"{name} {weight:.3f}" for name, weight in model.layer_weights().items())
    table = [
        ("checkpoint", [arguments.checkpoint]),
        ("architecture", config.architectures or ["ElmoModel"]),
        ("input", inputs),
        ("biLM", [lstm]),
        ("vectors", [f"{config.hidden_size} numbers, {config.num_hidden_layers + 1} layers"]),
        ("mix", [f"{config.mix}: {weights}" + (", layer norm" if config.mix_layer_norm else "")]),
        ("vocabulary", [vocabulary]),
        ("parameters", [f"{model.num_parameters():,} ({str(model.dtype).removeprefix('torch.')})"]),
    ]
    for name, lines in table:
        for line in lines:
            print(f"{name:<13} {line}")
            name = ""
    return 0


def run_embed(arguments: argparse.Namespace) -> int:
    if not arguments.output.endswith(".npz"):
        raise UserError(f"--output must name an .npz file, got {arguments.output}.")
    folder = os.path.dirname(arguments.output) or "."
    if not os.path.isdir(folder):
        raise UserError(f"--output must lie in a folder that is there; {folder} is not.")
    lines = list(read_lines(arguments.input))
    if not any(lines):
        raise UserError(f"The input must hold text, a sentence a line; {arguments.input} holds none.")
    model, tokenizer = load(arguments.checkpoint)
    model.to(arguments.device)
    sentences = [line.split() for line in lines] if arguments.words else lines
    embedded = embed(model, tokenizer, sentences, layer=arguments.layer, batch_size=arguments.batch_size)
    bar = tqdm(embedded, total=len(lines), unit=" sentences", disable=not sys.stderr.isatty())
    number, words = write_npz(arguments.output, bar)
    print(f"{number:,} sentences, {words:,} words: {arguments.output}")
    return 0


def run_convert(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for release in RELEASES.values():
            print(f"{release.name:<31} {release.language or '':<4} {release.description}")
        return 0
    if (arguments.source is None) == (arguments.name is None):
        raise UserError("convert takes a SOURCE or the --name of a release, and not both; see elmo convert --list.")
    if not arguments.push_to_hub and (arguments.private or arguments.revision or arguments.message):
        raise UserError("--private, --revision and --message are for --push-to-hub REPO; give it, or leave them out.")
    if arguments.output is None:
        raise UserError("convert needs the folder to make: --output DIR.")
    quiet()
    # Whatever is known to fail fails before the work, which may be gigabytes of download.
    check_output(arguments.output)
    if arguments.push_to_hub:
        check_access(arguments.push_to_hub)
    source, language, license, title = arguments.source, arguments.language, arguments.license, None
    if arguments.name is not None:
        release = find_release(arguments.name)
        source = download_release(release, Path(huggingface_hub.constants.HF_HOME) / "elmo")
        language, license = language or release.language, license or release.license
        title = f"ELMo {release.name}"
    given = Given(arguments.options, arguments.vocab, arguments.softmax)
    convert(source, arguments.output, given, language, license, title)
    if arguments.push_to_hub:
        push_folder(arguments.output, arguments.push_to_hub, arguments)
    return 0


def run_pretrain(arguments: argparse.Namespace) -> int:
    quiet()
    given = {field.name: getattr(arguments, field.name, None) for field in dataclasses.fields(Recipe)}
    recipe = dataclasses.replace(
        RECIPES[arguments.recipe], **{name: value for name, value in given.items() if value is not None}
    )
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
    names = {field.name for field in dataclasses.fields(Settings)} & vars(arguments).keys()
    options = {name: getattr(arguments, name) for name in names - {"recipe", "output", "steps"}}
    settings = Settings(
        output=str(arguments.output),
        recipe=recipe,
        steps=arguments.steps or 0,
        command=shlex.join(["elmo", *arguments.line]),
        **options,
    )
    return 0 if pretrain_from_texts(texts, initial_model, settings, resume=arguments.resume) else 130


def run_export(arguments: argparse.Namespace) -> int:
    model, tokenizer = load(arguments.checkpoint, with_lm_head=True)
    export_bilm(model, tokenizer, arguments.output)
    return 0


def run_push(arguments: argparse.Namespace) -> int:
    quiet()
    push_folder(arguments.folder, arguments.repo, arguments)
    return 0


def push_folder(folder: Path, repo: str, arguments: argparse.Namespace):
    on_terminal = sys.stderr.isatty()
    if on_terminal:
        huggingface_hub.utils.enable_progress_bars()  # which quiet() stops too
    try:
        address = push(folder, repo, arguments.private, arguments.revision, arguments.message)
    except BaseException:
        if on_terminal:
            print(file=sys.stderr)  # the bars have not ended their lines
        raise
    print(f"pushed       {address}")


def read_lines(path: str) -> Iterator[str]:
    """Lines of a UTF-8 file or of standard input, without their ends."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
        for line in io.StringIO(data.decode("utf-8")):  # ends lines at \n and \r\n, and nowhere else
            yield line.strip()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{path} must be UTF-8 text; line {line} holds the byte 0x{data[error.start]:02x}.") from error
