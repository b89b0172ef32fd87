# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""`elmo convert`: convert a released ELMo to a checkpoint."""

import argparse
from pathlib import Path

from .arguments import add_card_arguments, add_push_arguments


def add_arguments(parser: argparse.ArgumentParser):
    parser.description = """\
Convert a released ELMo to a checkpoint that transformers loads. The format of
SOURCE is detected: bilm-tf or AllenNLP weights (options.json and .hdf5), a
bilm-tf training checkpoint, an ELMoForManyLangs folder, an AllenNLP
model.tar.gz or a TensorFlow Hub module; as a folder, file or zip archive. The
checkpoint's outputs are compared with those of its source before it is saved."""
    parser.epilog = """\
examples:
  elmo convert --list
  elmo convert --name small -o elmo-small
  elmo convert path/to/weights -o my-elmo --push-to-hub me/my-elmo
  elmo convert weights.hdf5 --options options.json -o my-elmo --language pt
"""
    parser.add_argument("source", metavar="SOURCE", nargs="?", type=Path, help="file or folder to convert")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="folder to create")
    parser.add_argument(
        "--name", metavar="RELEASE", help="download a known release instead of SOURCE; cached in $HF_HOME/elmo"
    )
    parser.add_argument("--list", action=ListReleases, nargs=0, help="list the known releases and exit")

    group = parser.add_argument_group("files that are not next to the weights")
    group.add_argument("--options", metavar="FILE", type=Path, help="options.json")
    group.add_argument("--vocab", metavar="FILE", type=Path, help="vocab.txt")
    group.add_argument("--softmax", metavar="FILE", type=Path, help=".hdf5 file of the softmax")

    add_card_arguments(parser.add_argument_group("model card"))

    group = parser.add_argument_group("Hub")
    group.add_argument("--push-to-hub", metavar="REPO", help="push the checkpoint to this repository")
    add_push_arguments(group)


class ListReleases(argparse.Action):
    def __call__(self, parser, *arguments):
        from ..convert.releases import RELEASES

        for release in RELEASES.values():
            print(f"{release.name:<31} {release.language or '':<4} {release.description}")
        parser.exit()


def check_arguments(arguments: argparse.Namespace):
    if arguments.source is None and arguments.name is None:
        raise ValueError("convert needs a SOURCE or the --name of a release; see elmo convert --list.")
    if arguments.source is not None and arguments.name is not None:
        raise ValueError("convert takes a SOURCE or the --name of a release, not both; omit one of them.")
    if arguments.push_to_hub == "":
        raise ValueError("--push-to-hub must be a repository, e.g. me/my-elmo; it is empty: name one, or omit it.")
    if not arguments.push_to_hub and (arguments.private or arguments.revision or arguments.message):
        raise ValueError("--private, --revision and --message need --push-to-hub REPO; add it or omit them.")
    if arguments.output is None:
        raise ValueError("convert needs a folder to create; add --output DIR.")
    if arguments.name is not None:
        from ..convert.releases import find_release

        find_release(arguments.name)


def run(arguments: argparse.Namespace) -> int:
    from huggingface_hub.constants import HF_HOME

    from ..convert.download import download_release
    from ..convert.job import convert
    from ..convert.push import check_access
    from ..convert.releases import find_release
    from ..convert.sources import ExtraFiles
    from ..files import check_new_folder
    from .push import push_folder

    # Fail before gigabytes are downloaded and converted.
    check_new_folder(arguments.output)
    if arguments.push_to_hub:
        check_access(arguments.push_to_hub)
    source, language, license, title, notes = arguments.source, arguments.language, arguments.license, None, []
    if arguments.name is not None:
        release = find_release(arguments.name)
        source = download_release(release, Path(HF_HOME) / "elmo")
        language, license = language or release.language, license or release.license
        title, notes = f"ELMo {release.name}", release.notes
    extra_files = ExtraFiles(options=arguments.options, vocab=arguments.vocab, softmax=arguments.softmax)
    convert(source, arguments.output, extra_files, language=language, license=license, title=title, notes=notes)
    if arguments.push_to_hub:
        push_folder(arguments.output, arguments.push_to_hub, arguments)
    return 0
