# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""ELMo for transformers. Importing this package registers its classes with the Auto classes."""

import sys

# The `elmo` console script imports this package a second time, in full, once it has parsed its arguments.
if not getattr(sys.modules.get("elmo_command"), "parsing_arguments", False):
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForPreTraining,
        AutoModelForTextEncoding,
        AutoModelForTokenClassification,
        AutoTokenizer,
    )

    from .checkpoints import DEFAULT_CHECKPOINT
    from .configuration_elmo import ElmoConfig
    from .language_model import ElmoLanguageModel
    from .model_card import write_model_card
    from .modeling_elmo import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoPreTrainedModel
    from .quantization_elmo import ElmoQuantizationConfig, register
    from .tokenization_elmo import ElmoTokenizer

    AutoConfig.register("elmo", ElmoConfig, exist_ok=True)
    AutoTokenizer.register(ElmoConfig, tokenizer_class=ElmoTokenizer, exist_ok=True)
    AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
    AutoModelForPreTraining.register(ElmoConfig, ElmoForPreTraining, exist_ok=True)
    AutoModelForTextEncoding.register(ElmoConfig, ElmoModel, exist_ok=True)
    AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification, exist_ok=True)
    ElmoPreTrainedModel.model_card_writer = write_model_card
    register()

__all__ = [
    "DEFAULT_CHECKPOINT",
    "ElmoConfig",
    "ElmoForPreTraining",
    "ElmoForTokenClassification",
    "ElmoLanguageModel",
    "ElmoModel",
    "ElmoPreTrainedModel",
    "ElmoQuantizationConfig",
    "ElmoTokenizer",
]
