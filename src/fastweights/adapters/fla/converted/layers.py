"""The layers of flash-linear-attention that can be converted."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, logsigmoid, relu, softplus

from fastweights.adapters.fla.converted.layer import Config, ConvertedLayer, Heads, whole
from fastweights.adapters.fla.converted.parts import Activation, ShortConvolution
from fastweights.adapters.fla.memories import kda_decay
from fastweights.cell import Cell
from fastweights.core.autocast import at_least_float32
from fastweights.normalisers.l2 import l2

ACTIVATIONS: dict[str, Any] = {"relu": relu, "elu": lambda x: elu(x) + 1, "identity": lambda x: x, "silu": lambda x: x}
"""Activations of DeltaNet's queries and keys, behind the convolution, which has the SiLU."""


class FlaDeltaNet(ConvertedLayer):
    """The delta rule."""

    cell = Cell.from_name("delta")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        d_model, heads = config["hidden_size"], self.heads
        self.b_proj = nn.Linear(d_model, heads.values, bias=False) if config["use_beta"] else None
        width = heads.values * heads.value_size
        self.g_proj = nn.Linear(d_model, width, bias=False) if config["use_gate"] else None
        self.activation = ACTIVATIONS[config["qk_activation"]]
        self.normaliser = _unit if config["qk_norm"] == "l2" else _sum_norm
        self.largest_rate = 2 if config["allow_neg_eigval"] else 1

    @staticmethod
    def heads_of(config: Config) -> Heads:
        """The heads of a layer."""
        return _split_heads(config)

    def convolutions(self, config: Config) -> list[nn.Module]:
        """The maps of queries, keys and values before the memory."""
        has_activation = config["qk_activation"] == "silu"
        maps = super().convolutions(config)
        if has_activation:
            return maps
        size = self.q_proj.out_features
        plain = [
            ShortConvolution(size, config["conv_size"], False) if config["use_short_conv"] else Activation(False)
            for _ in range(2)
        ]
        return [*plain, maps[2]]

    def inputs(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """The inputs of the cell."""
        q, k = (self.normaliser(self.activation(y)) for y in (q, k))
        rate = torch.ones_like(v[..., 0]) if self.b_proj is None else self.b_proj(x).sigmoid()
        return self.cell.Inputs(_scaled(q), k, v, rate * self.largest_rate)

    def gate(self, x: Tensor) -> Tensor | None:
        """Logits of the output gate."""
        return None if self.g_proj is None else self.g_proj(x)


class FlaGatedDeltaNet(ConvertedLayer):
    """The gated delta rule."""

    cell = Cell.from_name("gated-delta")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        d_model, heads = config["hidden_size"], self.heads
        self.a_proj = nn.Linear(d_model, heads.values, bias=False)
        self.b_proj = nn.Linear(d_model, heads.values, bias=False)
        self.A_log = nn.Parameter(torch.zeros(heads.values))
        self.dt_bias = nn.Parameter(torch.zeros(heads.values))
        width = heads.values * heads.value_size
        self.g_proj = nn.Linear(d_model, width, bias=False) if config["use_gate"] else None
        self.largest_rate = 2 if config["allow_neg_eigval"] else 1

    @staticmethod
    def heads_of(config: Config) -> Heads:
        """The heads of a layer."""
        return _sized_heads(config)

    def norm_options(self, config: Config) -> dict[str, Any]:
        """Options of the norm of the output."""
        return {"activation": config["output_gate_activation"]}

    def inputs(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """The inputs of the cell."""
        step = softplus(at_least_float32(self.a_proj(x)) + self.dt_bias)
        decay = torch.exp(-at_least_float32(self.A_log).exp() * step)
        rate = self.b_proj(x).sigmoid() * self.largest_rate
        return self.cell.Inputs(_scaled(_unit(q)), _unit(k), v, decay, rate)

    def gate(self, x: Tensor) -> Tensor | None:
        """Logits of the output gate."""
        return None if self.g_proj is None else self.g_proj(x)


class FlaGatedLinearAttention(ConvertedLayer):
    """Gated linear attention."""

    cell = Cell.from_name("gla")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        d_model, heads, rank = config["hidden_size"], self.heads, config["gate_low_rank_dim"]
        low, high = nn.Linear(d_model, rank, bias=False), nn.Linear(rank, heads.keys * heads.key_size)
        self.gk_proj = nn.Sequential(low, high)
        width = heads.queries * heads.value_size
        self.g_proj = nn.Linear(d_model, width, bias=False) if config["use_output_gate"] else None
        self.divisor, self.smallest = config["gate_logit_normalizer"], config["clamp_min"]

    @staticmethod
    def heads_of(config: Config) -> Heads:
        """The heads of a layer."""
        return _split_heads(config)

    def convolutions(self, config: Config) -> list[nn.Module]:
        """The maps of queries, keys and values before the memory."""
        return super().convolutions(config) if config["use_short_conv"] else [Activation(False) for _ in range(3)]

    def norm_options(self, config: Config) -> dict[str, Any]:
        """Options of the norm of the output."""
        return {"is_affine": config["elementwise_affine"]}

    def inputs(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """The inputs of the cell."""
        g = logsigmoid(at_least_float32(self.gk_proj(x))) / self.divisor
        g = g if self.smallest is None else g.clamp(min=self.smallest)
        decay = self.shared(g.unflatten(-1, (-1, self.heads.key_size))).exp()
        return self.cell.Inputs(_scaled(q), k, v, decay)

    def gate(self, x: Tensor) -> Tensor | None:
        """Logits of the output gate."""
        return None if self.g_proj is None else self.g_proj(x)


class FlaKimiDeltaAttention(ConvertedLayer):
    """Kimi delta attention."""

    cell = Cell.from_name("kda")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        d_model, heads = config["hidden_size"], self.heads
        decays, values = heads.values * heads.key_size, heads.values * heads.value_size
        rank = heads.value_size
        self.f_proj = nn.Sequential(nn.Linear(d_model, rank, bias=False), nn.Linear(rank, decays, bias=False))
        self.g_proj = nn.Sequential(nn.Linear(d_model, rank, bias=False), nn.Linear(rank, values))
        self.b_proj = nn.Linear(d_model, heads.values, bias=False)
        self.A_log = nn.Parameter(torch.zeros(heads.values))
        self.dt_bias = nn.Parameter(torch.zeros(decays))
        self.largest_rate = 2 if config["allow_neg_eigval"] else 1
        self.lower_bound = config["lower_bound"]

    @staticmethod
    def heads_of(config: Config) -> Heads:
        """The heads of a layer."""
        return _sized_heads(config)

    def norm_options(self, config: Config) -> dict[str, Any]:
        """Options of the norm of the output."""
        return {"activation": "sigmoid"}

    def inputs(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """The inputs of the cell."""
        g = self.f_proj(x).unflatten(-1, (-1, self.heads.key_size))
        decay = kda_decay(g, self.A_log, self.dt_bias, self.lower_bound).exp()
        rate = self.b_proj(x).sigmoid() * self.largest_rate
        return self.cell.Inputs(_scaled(_unit(q)), _unit(k), v, decay, rate)

    def gate(self, x: Tensor) -> Tensor | None:
        """Logits of the output gate."""
        gate: Tensor = self.g_proj(x)
        return gate


def _split_heads(config: Config) -> Heads:
    """Heads of a layer whose width is a multiple of the model size."""
    d_model, heads = config["hidden_size"], config["num_heads"]
    shared = config.get("num_kv_heads") or heads
    key_size = whole("expand_k", d_model * config["expand_k"] / heads)
    value_size = whole("expand_v", d_model * config["expand_v"] / heads)
    return Heads(heads, shared, shared, key_size, value_size)


def _sized_heads(config: Config) -> Heads:
    """Heads of a layer whose config has the size of a key."""
    heads, size = config["num_heads"], config["head_dim"]
    return Heads(heads, heads, config["num_v_heads"] or heads, size, whole("expand_v", size * config["expand_v"]))


def _scaled(q: Tensor) -> Tensor:
    return q * q.shape[-1] ** -0.5


def _unit(x: Tensor) -> Tensor:
    return l2(at_least_float32(x)).to(x.dtype)


def _sum_norm(x: Tensor) -> Tensor:
    return (x / x.sum(-1, keepdim=True)).to(x.dtype)
