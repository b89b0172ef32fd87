# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The `elmo` command: one module per verb, imported when that verb is chosen.

A verb's module has `add_arguments(parser)` and `run(arguments)`, which returns the exit code, and may have
`check_arguments(arguments)`. Only `run` imports torch and transformers, so that help and usage errors appear at once.
"""

import argparse
import contextlib
import difflib
import errno
import io
import os
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn, TextIO

from ..text import display_name, printable

ISSUES = "https://github.com/transformers-elmo/transformers-elmo/issues"
VERBS = {
    "info": "describe a checkpoint",
    "embed": "compute contextual vectors for the words of a text",
    "pretrain": "train an ELMo on raw text",
    "convert": "convert a released ELMo to a checkpoint",
    "quantize": "make a checkpoint smaller: int8 weights",
    "export": "write a checkpoint for bilm-tf and AllenNLP, or as ONNX",
    "push": "push a checkpoint to the Hub",
}


def main(argv: Sequence[str] | None = None, before_run: Callable[[], object] = lambda: None) -> int:
    """Run the command and return its exit code. `before_run` is called once the arguments are known to be valid."""
    argv = sys.argv[1:] if argv is None else list(argv)
    show_traceback = False
    try:
        prepare_output()
        exit_on_termination_signals()
        try:
            verb, arguments = parse_arguments(argv)
            show_traceback = arguments.traceback
            if hasattr(verb, "check_arguments"):
                verb.check_arguments(arguments)
            before_run()
            silence_libraries()
            code = verb.run(arguments)
        except SystemExit as stop:  # after help, a usage error or a signal
            code = stop.code if isinstance(stop.code, int) else 0
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print_error("stopped")
        return 130
    except BrokenPipeError:
        # The reader of our output has exited, as in `elmo info default | head -1`.
        flush(sys.stdout)
        return 141
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        code, message = describe_error(error)
        print_error(message)
        return code


def describe_error(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error. 70 is for bugs: those are not ValueError, OSError or such."""
    text = printable(" ".join(str(error).split()))
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        text = str(error.strerror)  # without "[Errno 2]"
        if error.errno == errno.ENOENT:
            text = "the working directory no longer exists; change to another one."
    if "gloo" in text and "Connection closed by peer" in text:
        text = "another process of this run has failed: see its message."
    output_is_lost = not flush(sys.stdout)
    if output_is_lost or (isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None):
        return 1, f"error: the output cannot be written: {text}; redirect it to another place."
    if is_out_of_memory(error):
        return 1, (
            f"error: there was not enough memory ({text or type(error).__name__}); use smaller batches (--batch-words "
            "or --rows), shorter lines or a smaller model."
        )
    if isinstance(error, OSError) and error.strerror and error.filename is not None and error.filename2 is None:
        return 1, f"error: {display_name(os.fsdecode(error.filename))}: {error.strerror}"  # without "[Errno 2]"
    if text and isinstance(error, (OSError, ValueError, RuntimeError)) and not isinstance(error, RecursionError):
        return 1, f"error: {text}"
    return 70, (
        f"internal error: {type(error).__name__}: {text[:1000]}; this is a bug: please report it with the output of "
        f"--traceback at {ISSUES}"
    )


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out; torch raises a RuntimeError for the CPU, and a class of its own for a GPU."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def prepare_output():
    """Raise if standard output is closed; let it escape what its encoding lacks, such as a name that is no text."""
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        raise OSError("standard output must be open, and is closed; redirect it, for example to /dev/null.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_error(message: str):
    with contextlib.suppress(OSError):
        print(f"elmo: {message}", file=sys.stderr)
    flush(sys.stderr)


def flush(stream: TextIO | None) -> bool:
    """Return whether what is buffered can be written; if not, discard it, as Python would try it again at exit."""
    if stream is None:  # closed
        return True
    try:
        stream.flush()
        return True
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False


def parse_arguments(argv: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Return the module of the verb and its arguments; `traceback` and `command_line` are set for every verb."""
    # No option before the verb takes a value, so the first argument without a dash is the verb.
    position = next((index for index, argument in enumerate(argv) if not argument.startswith("-")), len(argv))
    top = top_parser()
    options = top.parse_args(argv[:position])
    if position == len(argv):
        top.print_help(sys.stderr)
        sys.exit(2)
    name = argv[position]
    if name not in VERBS:
        similar = difflib.get_close_matches(name, VERBS, n=1)
        suggestion = f"; did you mean {similar[0]!r}?" if similar else "."
        print_error(f"error: unknown verb {name[:60]!r}{suggestion} The verbs are {', '.join(VERBS)}.")
        sys.exit(2)
    verb = import_module(f".{name}", __name__)
    parser = new_parser(f"elmo {name}")
    verb.add_arguments(parser)
    add_traceback_option(parser)
    arguments = parser.parse_intermixed_args(argv[position + 1 :])  # `embed default --pretokenized text.txt`
    arguments.traceback |= options.traceback
    arguments.command_line = shlex.join(["elmo", *argv])
    return verb, arguments


def top_parser() -> argparse.ArgumentParser:
    top = new_parser("elmo")
    top.usage = "elmo [-h] [--version] [--traceback] VERB ..."
    top.description = "ELMo for transformers: contextual word vectors."
    verbs = "\n".join(f"  {name:<10} {summary}" for name, summary in VERBS.items())
    top.epilog = f"verbs:\n{verbs}\n\n'elmo VERB --help' shows the options of a verb and examples."
    top.add_argument("--version", action=PrintVersion, nargs=0, help="show the version and exit")
    add_traceback_option(top)
    return top


def new_parser(name: str) -> argparse.ArgumentParser:
    return Parser(prog=name, formatter_class=argparse.RawDescriptionHelpFormatter)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        print_error(f"error: {printable(message)[:500]}; see {self.prog} --help.")
        sys.exit(2)


def add_traceback_option(parser: argparse.ArgumentParser):
    parser.add_argument("--traceback", action="store_true", help="show the Python traceback of an error")


class PrintVersion(argparse.Action):
    def __call__(self, parser, *arguments):
        from importlib.metadata import version

        print(f"transformers-elmo {version('transformers-elmo')}")
        parser.exit()


def exit_on_termination_signals():
    """Turn SIGTERM and SIGHUP into SystemExit, so that unfinished files are removed on the way out."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # leave nohup's SIG_IGN alone
            signal.signal(number, lambda received, _: sys.exit(128 + received))


def silence_libraries():
    """Keep warnings of libraries, and log messages and progress bars of transformers and the Hub, off the terminal."""
    import huggingface_hub.utils.logging
    from transformers.utils import logging

    huggingface_hub.utils.logging.set_verbosity_error()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
