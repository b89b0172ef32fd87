"""Export a Hugging Face checkpoint to the files that bilm-tf and AllenNLP read.

    pip install -e '.[convert]'   # once
    python convert_scripts/export_hf_to_bilm.py my-elmo exported

Writes options.json, weights.hdf5 and, if the checkpoint has them, vocab.txt and softmax.hdf5.
"""

import argparse
import sys
from pathlib import Path

from transformers_elmo.checkpoints import has_lm_head, load_config, load_model, load_tokenizer
from transformers_elmo.convert.export import export_bilm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help='folder, name on the Hub, or "default"')
    parser.add_argument("output", type=Path, help="folder to create")
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.checkpoint)
        model = load_model(arguments.checkpoint, config, with_lm_head=has_lm_head(config))
        export_bilm(model, load_tokenizer(arguments.checkpoint), arguments.output)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
