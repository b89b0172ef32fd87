# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""int8 weights: how they are rounded, which of them are, and how transformers loads and saves them.

Int8 are the recurrent weights of the LSTMs, their input weights from the second layer on, the highway layers and
`lm_head`. Each output has a scale, the buffer NAME_scale, and W = NAME * NAME_scale. All other matrices of the biLM are
rounded to bfloat16 and stored as such; in memory, they have the dtype that the model was loaded with. Biases, the mix
and the layers of a head are not rounded.

Shapes: H LSTM cells and P outputs of one direction.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.quantizers import HfQuantizer
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AUTO_QUANTIZER_MAPPING
from transformers.quantizers.quantizers_utils import get_module_from_name
from transformers.utils.quantization_config import QuantizationConfigMixin

QUANT_METHOD = "elmo_int8"
MAX_INT8 = 127  # symmetric: -128 is not used


def quantize(weight: torch.Tensor, output_dim: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Round a matrix to int8 with one scale per output: (in, out), or (out, in) with output_dim=0 -> int8, (out,)"""
    weight = weight.detach().to(torch.float32)
    scale = weight.abs().amax(1 - output_dim) / MAX_INT8  # (out,)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (weight / scale.unsqueeze(1 - output_dim)).round_().clamp_(-MAX_INT8, MAX_INT8).to(torch.int8), scale


def dequantize(weight: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype, output_dim: int = 1) -> torch.Tensor:
    """Return the matrix that int8 weights and their scales (out,) stand for."""
    wide = torch.promote_types(dtype, torch.float32)  # a scale that is rounded to half precision shifts a whole output
    return (weight.to(wide) * scale.unsqueeze(1 - output_dim)).to(dtype)


class Int8Module(nn.Module):
    """A module with a bias, some of whose matrices can be int8."""

    output_dim = 1  # of the matrices: (in, out)

    def is_int8(self, name: str) -> bool:
        return getattr(self, name).dtype == torch.int8

    def int8_weight(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an int8 matrix and its scales (out,)."""
        return getattr(self, name), getattr(self, f"{name}_scale")

    def float_weight(self, name: str) -> torch.Tensor:
        """Return a matrix for computation: the parameter itself or, if it is int8, its values in the bias's dtype."""
        if not self.is_int8(name):
            return getattr(self, name)
        return dequantize(*self.int8_weight(name), self.bias.dtype, self.output_dim)

    def set_int8_weight(self, name: str, weight: torch.Tensor, scale: torch.Tensor):
        parameter = nn.Parameter(weight, requires_grad=False)
        parameter._is_hf_initialized = True  # else `_init_weights` would fill one that is offloaded to the disk
        setattr(self, name, parameter)
        self.register_buffer(f"{name}_scale", scale)

    def quantize_weight(self, name: str):
        self.set_int8_weight(name, *quantize(getattr(self, name), self.output_dim))

    def dequantize_weight(self, name: str):
        setattr(self, name, nn.Parameter(self.float_weight(name)))
        delattr(self, f"{name}_scale")

    def _apply(self, fn, recurse=True):
        # Scales stay float32 where `.to(dtype)` converts the other numbers.
        scales = {name: buffer for name, buffer in self._buffers.items() if name.endswith("_scale")}
        super()._apply(fn, recurse)
        for name, scale in scales.items():
            converted = self._buffers[name]
            if converted.dtype != torch.float32:
                self._buffers[name] = scale.to(converted.device)
        return self


class ElmoLinear(Int8Module, nn.Linear):
    """A linear layer whose weight (out, in) can be int8."""

    output_dim = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.float_weight("weight"), self.bias)


def int8_weights(model: nn.Module) -> Iterator[tuple[Int8Module, str]]:
    """Return the weights that are int8 in a quantized model, as modules and names."""
    elmo: Any = model.base_model
    for index, layer in enumerate(elmo.bilm.layers):
        for lstm in (layer.forward_lstm, layer.backward_lstm):
            yield lstm, "recurrent_weight"
            if index > 0:  # at boundaries, word vectors are too long for the first layer's to be multiplied in int8
                yield lstm, "input_weight"
    if elmo.token_encoder.characters is not None:
        for highway in elmo.token_encoder.characters.highways:
            yield highway.transform, "weight"
            yield highway.carry, "weight"
    if hasattr(model, "lm_head"):
        yield model.lm_head, "weight"


def bfloat16_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights that a quantized model stores as bfloat16."""
    elmo: Any = model.base_model
    parameters = [*elmo.token_encoder.parameters(), *elmo.bilm.parameters()]
    return [parameter for parameter in parameters if parameter.dim() > 1 and parameter.is_floating_point()]


class ElmoQuantizationConfig(QuantizationConfigMixin):
    """Ask for int8 weights: `AutoModel.from_pretrained(name, quantization_config=ElmoQuantizationConfig())`.

    Args:
        bits (`int`): of a quantized weight, 8.
    """

    def __init__(self, bits: int = 8, quant_method: str = QUANT_METHOD, **unknown):
        if bits != 8 or quant_method != QUANT_METHOD or unknown:
            got = {"bits": bits, "quant_method": quant_method, **unknown}
            raise ValueError(f'An ELMo is quantized with bits=8 and quant_method="{QUANT_METHOD}", got {got!r:.200}.')
        self.bits, self.quant_method = bits, quant_method

    def get(self, name: str, default=None):
        """Return a field: transformers reads a configuration that was used before as if it were a dictionary."""
        return getattr(self, name, default)


class ElmoQuantizer(HfQuantizer):
    """Quantizes a model after its weights were loaded, or prepares it for weights that are int8 already."""

    trains_head = False

    def _process_model_before_weight_loading(self, model, **kwargs):
        if not self.pre_quantized:
            return
        is_complete = model.config.architectures == [type(model).__name__]  # else, the head is new
        for module, name in int8_weights(model):
            if is_complete or module is not getattr(model, "lm_head", None):
                weight = getattr(module, name)
                scale = torch.empty(weight.shape[module.output_dim], dtype=torch.float32, device=weight.device)
                module.set_int8_weight(name, torch.empty_like(weight, dtype=torch.int8), scale)

    def _process_model_after_weight_loading(self, model, **kwargs):
        if not self.pre_quantized and any(parameter.is_meta for parameter in model.parameters()):
            raise ValueError(
                "A model is quantized in memory, and device_map keeps weights on the disk: save the quantized model "
                "first, then load that with the device_map."
            )
        for module, name in int8_weights(model):
            if getattr(module, name).dtype != torch.int8:
                module.quantize_weight(name)
        for parameter in bfloat16_weights(model):
            parameter.data = parameter.data.to(torch.bfloat16).to(parameter.dtype)  # as it will be after saving
        parts = [model.base_model.token_encoder, model.base_model.bilm, getattr(model, "lm_head", None)]
        for part in [part for part in parts if part is not None]:
            part.requires_grad_(False)
        self.trains_head = not hasattr(model, "lm_head")
        return model

    def get_state_dict_and_metadata(self, model):
        """Return the weights to save."""
        rounded = {*map(id, bfloat16_weights(model))}
        weights = model.state_dict(keep_vars=True)
        return {
            name: weight.detach().to(torch.bfloat16) if id(weight) in rounded else weight.detach()
            for name, weight in weights.items()
        }, {}

    def _dequantize(self, model, dtype=None):
        for module, name in int8_weights(model):
            module.dequantize_weight(name)
        model.requires_grad_(True)
        model.is_quantized = False
        model._freeze()
        return model if dtype is None else model.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)

    def is_serializable(self):
        return True

    @property
    def is_trainable(self) -> bool:
        """Whether something is left to train: a head and the mix, above a frozen biLM."""
        return self.trains_head

    @property
    def is_qat_trainable(self) -> bool:
        return self.trains_head  # without it, Trainer requires an adapter of PEFT


def register():
    """Make transformers use the classes of this file: each checkpoint from the Hub can bring a copy of its own."""
    AUTO_QUANTIZATION_CONFIG_MAPPING[QUANT_METHOD] = ElmoQuantizationConfig
    AUTO_QUANTIZER_MAPPING[QUANT_METHOD] = ElmoQuantizer


def report_mismatches(model: nn.Module, expected: dict[str, torch.Tensor], loading_info):
    """Add weights of a wrong shape to the report, and empty them: transformers sets any shape in a quantized model."""
    for name, weight in model.state_dict().items():
        if weight.shape != expected[name].shape:
            loading_info.mismatched_keys.add((name, weight.shape, expected[name].shape))
            module, attribute = get_module_from_name(model, name)
            empty = expected[name]
            is_buffer = attribute in module._buffers
            setattr(module, attribute, empty if is_buffer else nn.Parameter(empty, empty.is_floating_point()))
