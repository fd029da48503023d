"""The smallest model around a memory: keys are learned, and values are one-hot."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fastweights.cell import Cell
from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.dispatch import scan
from fastweights.layers.base.attention import attention
from fastweights.layers.base.initialise import change_initial
from fastweights.layers.base.slow_net import Keys
from fastweights.layers.base.slow_net import normaliser as make_normaliser

SOFTMAX = "softmax-attention"
ROLES = {"key", "value", "rate"}


class RetrievalModel(nn.Module):
    """Model for associative retrieval: one memory with learned keys and one-hot values.

        k = W_K ["onehot"(v), e(s)]
        beta = sigmoid(W_b ["onehot"(v), e(s)])
        q = W_Q e(s_q)
        y = "read"(M, q)

    Each pair of a symbol s and a value v is written to the memory M, and all queries s_q follow at the end. A query is
    a time step that writes nothing, since its key, value and rate are 0. "softmax-attention" stores all pairs instead.

    Source: Schlag et al. 2021 (arXiv:2102.11174), Sec. 6.1, with the authors' sizes: embeddings of int(2.2 S), keys of
    64, uniform initial weights up to 1/8 (Xavier's for the softmax). Linear attention adds 1e-5 to its divisor, their
    code 1e-6.

    Args:
        kind: Kind of inputs, "pairs".
        input_size: Number S of keys and of values.
        output_size: Number of values, S.
        memory: Rule or cell whose inputs are keys, values and rates, or its name, or "softmax-attention".
        feature_map: Feature map of keys and queries, from `fastweights list feature-maps`.
        qk_norm: Normaliser of keys, and of queries if `query_norm` is None.
        query_norm: Normaliser of queries. None: `qk_norm`.
        key_size: Size of keys and queries before the feature map.

    Raises:
        InputError: `kind` is not "pairs", or the memory has other inputs.

    Example:
        >>> model = RetrievalModel(
        ...     "pairs", 20, 20, memory="delta", feature_map="dpfp-1", qk_norm="sum"
        ... )
        >>> model(torch.randint(20, (2, 12, 2)), answers=4).shape
        torch.Size([2, 4, 20])
    """

    @checked
    def __init__(
        self,
        kind: str,
        input_size: Size,
        output_size: Size,
        memory: Any,
        feature_map: str = "identity",
        qk_norm: str = "none",
        query_norm: str | None = None,
        key_size: Size = 64,
    ) -> None:
        super().__init__()
        require(kind == "pairs", "kind", "'pairs', keys with values", repr(kind))
        self.values = output_size
        self.cell = None if memory == SOFTMAX else _cell(memory)
        embedding = int(1.1 * 2 * input_size)
        self.embedding = nn.Embedding(input_size, embedding)
        self.keys = Keys(key_size, feature_map, "none")
        self.normalise_key = make_normaliser(qk_norm)
        self.normalise_query = make_normaliser(query_norm or qk_norm)
        self.key = nn.Linear(output_size + embedding, key_size)
        self.query = nn.Linear(embedding, key_size)
        self.rate = nn.Linear(output_size + embedding, 1)
        for linear in (self.key, self.query):
            change_initial(linear, _glorot if self.cell is None else _uniform)

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Writes pairs and answers queries.

        Args:
            inputs: A key and a value per time step, int `[B, L + P, 2]`. The last P are the queries, whose values are
                ignored.
            answers: Number P of queries.

        Returns:
            The values that the memory retrieves, `[B, P, S]`.
        """
        keys, values = inputs.unbind(-1)
        stored, questions = self.embedding(keys).split([keys.shape[1] - answers, answers], dim=1)
        v = one_hot(values[:, :-answers], self.values).to(stored.dtype)
        pairs = torch.cat([v, stored], dim=-1)
        k, q = self.key(pairs), self.query(questions)
        # One call of the map, since random features must be the same for keys and queries.
        k, q = self.keys(torch.cat([k, q], dim=1)).split([k.shape[1], answers], dim=1)
        k, q = self.normalise_key(k), self.normalise_query(q)
        if self.cell is None:
            return attention(q, k, v)
        return self._read(q, {"key": k, "value": v, "rate": self.rate(pairs).sigmoid().squeeze(-1)})

    def _read(self, q: Tensor, written: dict[str, Tensor]) -> Tensor:
        """Reads the memory: q `[B, Q, K]`, inputs of the writes by role `[B, L, ...]` -> `[B, Q, S]`."""
        assert self.cell is not None
        questions, pairs = q.shape[1], written["key"].shape[1]
        fields = {"q": _join(q.new_zeros(len(q), pairs, q.shape[2]), q)}
        for name, slot in self.cell.slots["Inputs"].items():
            if name != "q":
                part = written[slot.kind]
                fields[name] = _join(part, part.new_zeros(len(part), questions, *part.shape[2:]))
        y, _ = scan(self.cell, self.cell.Inputs(**fields))
        return y[:, pairs:, 0]


def _glorot(linear: nn.Linear) -> None:
    nn.init.xavier_uniform_(linear.weight)


def _uniform(linear: nn.Linear) -> None:
    bound = linear.out_features**-0.5
    nn.init.uniform_(linear.weight, -bound, bound)


def _cell(memory: Any) -> Cell:
    cell = Cell.from_function(memory)
    roles = {slot.kind for slot in cell.slots["Inputs"].values()}
    writes_nothing = roles <= ROLES and cell.Params is None
    require(writes_nothing, "memory", "a cell without slow weights whose inputs are keys, values and rates", cell.name)
    return cell


def _join(before: Tensor, after: Tensor) -> Tensor:
    """Concatenates over time, and adds the axis of heads."""
    return torch.cat([before, after], dim=1).unsqueeze(2)
