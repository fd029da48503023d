"""Opens a checkpoint folder of flash-linear-attention as a `LanguageModel`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.adapters.fla.converted.block import ConvertedBlock
from fastweights.adapters.fla.converted.layer import Config, ConvertedLayer
from fastweights.adapters.fla.converted.layers import (
    FlaDeltaNet,
    FlaGatedDeltaNet,
    FlaGatedLinearAttention,
    FlaKimiDeltaAttention,
)
from fastweights.adapters.fla.converted.parts import RMSNorm
from fastweights.core.errors import InputError, require
from fastweights.models.language_model import LanguageModel
from fastweights.models.stack import Stack

LAYERS: Mapping[str, type[ConvertedLayer]] = {
    "delta_net": FlaDeltaNet,
    "gated_deltanet": FlaGatedDeltaNet,
    "gla": FlaGatedLinearAttention,
    "kda": FlaKimiDeltaAttention,
}
"""Layers by the `model_type` of a config."""
COMMON: Config = {
    **{"hidden_ratio": 4, "intermediate_size": None, "norm_eps": 1e-6, "tie_word_embeddings": False, "conv_size": 4},
    **{"use_short_conv": True, "allow_neg_eigval": False, "num_v_heads": None},
}
DEFAULTS: Mapping[str, Config] = {
    "delta_net": {
        **{"expand_k": 1.0, "expand_v": 1.0, "use_gate": False, "use_beta": True},
        **{"qk_norm": "l2", "qk_activation": "silu"},
    },
    "gated_deltanet": {"expand_v": 2.0, "head_dim": 256, "use_gate": True, "output_gate_activation": "swish"},
    "gla": {
        **{"expand_k": 0.5, "expand_v": 1.0, "use_short_conv": False, "num_kv_heads": None, "clamp_min": None},
        **{"use_output_gate": True, "elementwise_affine": True, "gate_low_rank_dim": 16, "gate_logit_normalizer": 16},
    },
    "kda": {"expand_v": 1.0, "head_dim": 128, "lower_bound": None},
}
"""Values that older configs leave out, as in flash-linear-attention 0.6."""
ONLY: Config = {"attn": None, "attnres_block_size": None, "feature_map": None, "use_gv": False, "hidden_act": "swish"}
"""Settings that must have one value, if the config has them."""
NAMES = {
    "model.embeddings.": "embedding.",
    "model.layers.": "blocks.",
    "model.norm.": "norm.",
    "lm_head.": "output.",
    "g_norm_swish_gate.": "o_norm.",
    "g_norm.": "o_norm.",
}
"""Parts of parameter names in a checkpoint, and in the model."""


def load(path: str | Path) -> LanguageModel:
    """Opens a checkpoint of DeltaNet, Gated DeltaNet, GLA or KDA. Neither flash-linear-attention nor Triton is needed.

    The logits are those of flash-linear-attention. The model has the interface of every `LanguageModel`: a state in
    place of a cache, `generate`, `stream`, padding by `lengths`. Weights keep the dtype of the checkpoint.

    Args:
        path: A folder with `config.json` and safetensors files, in one piece or with an index.

    Returns:
        The model, on the CPU.

    Raises:
        InputError: a file is missing, or the model is of another kind or has an option that cannot be converted.
    """
    folder = Path(path)
    config = _config(folder)
    with torch.device("meta"):
        model = _model(config)
    weights = {_renamed(name): tensor for name, tensor in _weights(folder).items()}
    if config["tie_word_embeddings"]:
        weights["output.weight"] = weights["embedding.weight"]
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as failure:
        reason = " ".join(str(failure).split())
        raise InputError(f"{folder} must be a checkpoint that fits its config.json, got {reason}") from None
    if config["tie_word_embeddings"]:
        model.output.weight = model.embedding.weight
    return model.eval()


def _config(folder: Path) -> Config:
    """The config of a checkpoint, with defaults; `InputError` if the model cannot be converted."""
    saved = json.loads(_existing(folder / "config.json").read_text(encoding="utf-8"))
    kind = saved.get("model_type")
    require(kind in LAYERS, "model_type", f"one of {', '.join(LAYERS)}", repr(kind))
    config = {**COMMON, **DEFAULTS[kind], **saved}
    for name, value in ONLY.items():
        remedy = "Run the model of flash-linear-attention after fastweights.adapters.fla.enable()."
        require(config.get(name, value) == value, name, repr(value), repr(config.get(name)), remedy)
    return config


def _existing(file: Path) -> Path:
    require(file.is_file(), "path", f"a folder with {file.name}", str(file.parent))
    return file


def _model(config: Config) -> LanguageModel:
    """The model of a config, without weights."""
    d_model, eps = config["hidden_size"], config["norm_eps"]
    model = LanguageModel(config["vocab_size"], d_model=d_model, num_layers=1, num_heads=1)
    layers = (LAYERS[config["model_type"]](config) for _ in range(config["num_hidden_layers"]))
    model.blocks = Stack([ConvertedBlock(layer, d_model, _width(config), eps) for layer in layers], d_model)
    model.norm = RMSNorm(d_model, eps)  # type: ignore[assignment]
    model.output = nn.Linear(d_model, config["vocab_size"], bias=False)
    return model


def _width(config: Config) -> int:
    """Width of the feed-forward networks: by default 2/3 of `hidden_ratio` model sizes, a multiple of 256."""
    width: int | None = config["intermediate_size"]
    if width is not None:
        return width
    hidden_size = int(config["hidden_size"] * (config["hidden_ratio"] or 4) * 2 / 3)
    return -(-hidden_size // 256) * 256


def _weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, by name."""
    try:
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise InputError("safetensors must be installed, got no such module. Try pip install safetensors.") from None
    index = folder / "model.safetensors.index.json"
    files = ["model.safetensors"]
    if index.is_file():
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    weights: dict[str, Any] = {}
    for file in files:
        weights |= load_file(_existing(folder / file))
    return weights


def _renamed(name: str) -> str:
    """The name of a parameter in the model."""
    return re.sub("|".join(map(re.escape, NAMES)), lambda match: NAMES[match[0]], name)
