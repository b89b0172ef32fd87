"""Convert an ELMo of bilm-tf, AllenNLP or TensorFlow Hub to a Hugging Face checkpoint.

    pip install -e '.[convert]'   # once
    python convert_scripts/convert_bilm_to_hf.py elmo_weights.hdf5 my-elmo --options elmo_options.json

The source is bilm-tf's options.json and .hdf5 weights, a TensorFlow checkpoint of its training, AllenNLP's model.tar.gz
or an unpacked TensorFlow Hub module. The checkpoint is verified against the original weights before it is saved.
"""

import argparse
import sys
from pathlib import Path

from transformers.utils import logging

from transformers_elmo.command import describe_error
from transformers_elmo.convert.job import convert
from transformers_elmo.convert.sources import ExtraFiles


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="weights, a checkpoint's prefix, an archive, or a folder with one")
    parser.add_argument("output", type=Path, help="folder to create")
    parser.add_argument("--options", type=Path, help="options.json, if it is not next to the weights")
    parser.add_argument("--vocab", type=Path, help="vocab.txt, if it is not next to the weights")
    parser.add_argument("--softmax", type=Path, help=".hdf5 file of the softmax, if it is not next to the weights")
    parser.add_argument("--language", help="for the model card, e.g. en")
    parser.add_argument("--license", help="for the model card, e.g. apache-2.0")
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    extra_files = ExtraFiles(options=arguments.options, vocab=arguments.vocab, softmax=arguments.softmax)
    try:
        convert(arguments.source, arguments.output, extra_files, language=arguments.language, license=arguments.license)
    except Exception as error:
        sys.exit(describe_error(error)[1])


if __name__ == "__main__":
    main()
