"""Push the folder of a checkpoint to the Hugging Face Hub.

    pip install -e .   # once
    hf auth login
    python convert_scripts/push_to_hub.py my-elmo user/my-elmo --private

The repository is created if it does not exist, and a model card is added if there is none.
"""

import argparse
import sys
from pathlib import Path

from transformers_elmo.command import describe_error
from transformers_elmo.convert.push import push


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of a checkpoint")
    parser.add_argument("repo", help="repository, e.g. user/my-elmo")
    parser.add_argument("--private", action="store_true", help="create a private repository")
    parser.add_argument("--revision", help="branch to push to, default: main")
    arguments = parser.parse_args()
    try:
        print(push(arguments.folder, arguments.repo, private=arguments.private, revision=arguments.revision))
    except Exception as error:
        sys.exit(describe_error(error)[1])


if __name__ == "__main__":
    main()
