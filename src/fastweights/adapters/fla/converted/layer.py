"""A layer of flash-linear-attention: projections, short convolutions, a memory, a gated norm."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.adapters.fla.converted.parts import Activation, RMSNorm, ShortConvolution, zeros
from fastweights.cell import Cell, MemoryState
from fastweights.core.errors import require
from fastweights.dispatch import scan
from fastweights.layers.base.layer import Controls, Layer
from fastweights.state import register_state

Config = Mapping[str, Any]
"""The content of a `config.json`."""


@register_state
class ConvertedState(NamedTuple):
    """The memory, and the states of the convolutions of queries, keys and values."""

    memory: Any
    q: Any
    k: Any
    v: Any


class Heads(NamedTuple):
    """Numbers and sizes of heads.

    Attributes:
        queries: Number of heads of queries.
        keys: Number of heads of keys.
        values: Number of heads of values.
        key_size: Size of a key, K.
        value_size: Size of a value, V.
    """

    queries: int
    keys: int
    values: int
    key_size: int
    value_size: int

    @property
    def memories(self) -> int:
        """Number of memories. Fewer heads of keys, or of values, are shared."""
        return max(self.queries, self.values)


class ConvertedLayer(Layer):
    """y = W_o norm(memory(q, k, v)): what the layers of flash-linear-attention have in common.

    A subclass defines the `cell`, `heads_of`, its further projections, `inputs` and `gate`.

    Args:
        config: The content of a `config.json`.
    """

    cell: Cell

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_size = d_model = config["hidden_size"]
        self.heads = heads = self.heads_of(config)
        self.q_proj = nn.Linear(d_model, heads.queries * heads.key_size, bias=False)
        self.k_proj = nn.Linear(d_model, heads.keys * heads.key_size, bias=False)
        self.v_proj = nn.Linear(d_model, heads.values * heads.value_size, bias=False)
        self.q_conv1d, self.k_conv1d, self.v_conv1d = self.convolutions(config)
        self.o_norm = RMSNorm(heads.value_size, config["norm_eps"], **self.norm_options(config))
        self.o_proj = nn.Linear(heads.memories * heads.value_size, d_model, bias=False)

    @staticmethod
    def heads_of(config: Config) -> Heads:
        """The heads of a layer."""
        raise NotImplementedError

    def convolutions(self, config: Config) -> list[nn.Module]:
        """The maps of queries, keys and values before the memory."""
        widths = [m.out_features for m in (self.q_proj, self.k_proj, self.v_proj)]
        if not config["use_short_conv"]:
            return [Activation(True) for _ in widths]
        return [ShortConvolution(width, config["conv_size"]) for width in widths]

    def norm_options(self, config: Config) -> dict[str, Any]:
        """Options of the norm of the output."""
        return {}

    def inputs(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """The inputs of the cell for x `[B, T, D]`, with queries, keys and values `[B, T, H, .]`.

        Queries are scaled by K^-0.5 here.
        """
        raise NotImplementedError

    def gate(self, x: Tensor) -> Tensor | None:
        """Logits of the output gate, `[B, T, H V]`; None without a gate."""
        raise NotImplementedError

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, Any]:
        """Runs the layer on checked inputs."""
        before = self.initial_state(len(x)) if state is None else state
        q, q_state = self.q_conv1d(self.q_proj(x), before.q, reset, lengths)
        k, k_state = self.k_conv1d(self.k_proj(x), before.k, reset, lengths)
        v, v_state = self.v_conv1d(self.v_proj(x), before.v, reset, lengths)
        K, V = self.heads.key_size, self.heads.value_size
        q, k, v = (self.shared(y.unflatten(-1, (-1, size))) for y, size in ((q, K), (k, K), (v, V)))
        o, memory = scan(self.cell, self.inputs(x, q, k, v), before.memory, None, reset, lengths)
        o, g = o.to(x.dtype), self.gate(x)
        y = self.o_norm(o, None if g is None else g.unflatten(-1, (-1, V)))
        return self.o_proj(y.flatten(2)), ConvertedState(memory, q_state, k_state, v_state)

    def shared(self, x: Tensor) -> Tensor:
        """x `[B, T, H', .]` for all H memories: each head serves several if H' < H."""
        times = self.heads.memories // x.shape[2]
        return x if times == 1 else x.repeat_interleave(times, 2)

    def initial_state(self, batch_size: int) -> ConvertedState:
        """Zeros."""
        sizes = (self.heads.memories, self.heads.value_size, self.heads.key_size)
        convolutions = (self.q_conv1d, self.k_conv1d, self.v_conv1d)
        starts = (layer.initial_state(batch_size) for layer in convolutions)  # type: ignore[operator]
        return ConvertedState(MemoryState(zeros(self, batch_size, *sizes)), *starts)


def whole(name: str, size: float) -> int:
    """A size that a config gives as a factor."""
    require(size == round(size), name, "a factor that gives a whole number", size)
    return round(size)
