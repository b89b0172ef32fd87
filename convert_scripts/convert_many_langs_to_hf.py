"""Convert an ELMoForManyLangs model to a Hugging Face checkpoint.

    pip install -e '.[convert]'   # once
    python convert_scripts/convert_many_langs_to_hf.py 144.zip elmo-english --language en

The source is a downloaded archive or the folder with config.json, encoder.pkl, token_embedder.pkl, word.dic and
char.dic. The checkpoint is verified against the original weights before it is saved.
"""

import argparse
import sys
from pathlib import Path

from transformers.utils import logging

from transformers_elmo.command import describe_error
from transformers_elmo.convert.job import convert


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="archive or folder")
    parser.add_argument("output", type=Path, help="folder to create")
    parser.add_argument("--language", help="for the model card, e.g. en")
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    try:
        convert(arguments.source, arguments.output, language=arguments.language, license="mit")
    except Exception as error:
        sys.exit(describe_error(error)[1])


if __name__ == "__main__":
    main()
