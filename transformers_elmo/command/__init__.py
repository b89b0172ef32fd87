# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""The `elmo` command: one module per verb, imported when that verb is chosen.

A verb's module has `add_arguments(parser)` and `run(arguments)`, which returns the exit code, and may have
`check_arguments(arguments)`. Only `run` imports torch and transformers, so that help and usage errors appear at once.
"""

import argparse
import difflib
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

VERBS = {
    "info": "describe a checkpoint",
    "embed": "compute contextual vectors for the words of a text",
    "pretrain": "train an ELMo on raw text",
    "convert": "convert a released ELMo to a checkpoint",
    "export": "write a checkpoint in the format of bilm-tf and AllenNLP",
    "push": "push a checkpoint to the Hub",
}


def main(argv: Sequence[str] | None = None, before_run: Callable[[], object] = lambda: None) -> int:
    """Run the command and return its exit code. `before_run` is called once the arguments are known to be valid."""
    argv = sys.argv[1:] if argv is None else list(argv)
    show_traceback = False
    try:
        exit_on_termination_signals()
        verb, arguments = parse_arguments(argv)
        show_traceback = arguments.traceback
        if hasattr(verb, "check_arguments"):
            verb.check_arguments(arguments)
        before_run()
        silence_libraries()
        code = verb.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("elmo: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has exited, as in `elmo info default | head -1`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OSError, ValueError, RuntimeError) as error:
        if show_traceback:
            traceback.print_exc()
        print(f"elmo: error: {error_message(error)}", file=sys.stderr)
        return 1


def error_message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename and not error.filename2:
        return f"{error.filename}: {error.strerror}"  # without "[Errno 2]"
    return " ".join(str(error).split())


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
        top.exit(2, f"elmo: error: unknown verb {name!r}{suggestion} The verbs are {', '.join(VERBS)}.\n")
    verb = import_module(f".{name}", __name__)
    parser = new_parser(f"elmo {name}")
    verb.add_arguments(parser)
    add_traceback_option(parser)
    arguments = parser.parse_args(argv[position + 1 :])
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
    return argparse.ArgumentParser(prog=name, formatter_class=argparse.RawDescriptionHelpFormatter)


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
    """Keep the log messages and progress bars of transformers and huggingface_hub off the terminal."""
    import huggingface_hub.utils.logging
    from transformers.utils import logging

    huggingface_hub.utils.logging.set_verbosity_error()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
