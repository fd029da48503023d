"""Gregor's neurons and synapses: a network in which every part has a learned update rule."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import Count, Size, checked
from fastweights.core.errors import require, require_name
from fastweights.core.family import family
from fastweights.signature import TensorSpec

OPERATORS = ("mlp", "mlp-tanh", "lstm", "lstm-sigma", "lstm-id", "gated")
"""The operators that can update a body or a synapse."""

CELLS = ("private", "shown")
"""Two readings of an LSTM as a synapse, see `make_neurons_and_synapses`."""

EFFECTS = ("product", "operator")
"""The output of a synapse: its state times a component of the other neuron, or its state alone."""

BOUND = 3.0
"""Bound on the absolute value of a cell of LSTM-id, where cells are private. Its output h = o c is unbounded and a
synapse is never reset, so that cells of several hundred would saturate every network that reads them."""


class NeuronsAndSynapsesInputs(NamedTuple):
    """Observations of the I neurons of the input layer."""

    x: Annotated[Tensor, TensorSpec("I", "value")]


Update = Callable[[Tensor, Tensor, Tensor], Tensor]
"""An operator: state `[C, ...]`, what its network says of [state, x], product term -> new state."""


def _mlp(squash: Callable[[Tensor], Tensor]) -> Update:
    return lambda state, output, product: squash(output)


def _lstm(squash: Callable[[Tensor], Tensor], bound: float | None = None) -> Update:
    """The state is [hidden, cell], C / 2 components each, with hidden = gate * squash(cell) and |cell| <= bound."""

    def update(state: Tensor, output: Tensor, product: Tensor) -> Tensor:
        cell = state.chunk(2)[1]
        gate_in, gate_forget, new, gate_out = output.chunk(4)
        cell = gate_forget.sigmoid() * cell + gate_in.sigmoid() * new.tanh()
        cell = cell if bound is None else cell.clamp(-bound, bound)
        return torch.cat([gate_out.sigmoid() * squash(cell), cell])

    return update


def _gated(state: Tensor, output: Tensor, product: Tensor) -> Tensor:
    gate, new = output.chunk(2)
    gate = gate.sigmoid()
    return (1 - gate) * state + gate * (new.tanh() + product)


def _update(operator: str, plain: Callable[[Tensor], Tensor], bound: float | None) -> Update:
    return {
        "mlp": _mlp(plain),
        "mlp-tanh": _mlp(torch.tanh),
        "lstm": _lstm(torch.tanh),
        "lstm-sigma": _lstm(torch.sigmoid),
        "lstm-id": _lstm(lambda cell: cell, bound),
        "gated": _gated,
    }[operator]


def _network(params: Any, part: str, x: list[Tensor]) -> Tensor:
    """The network of a part: one hidden tanh layer, or none for an LSTM, whose gates are its nonlinearity."""
    if not hasattr(params, f"{part}_hidden"):
        return _linear(params, part, x)
    return _linear(params, part, [_linear(params, f"{part}_hidden", x).tanh()])


def _linear(params: Any, name: str, x: list[Tensor]) -> Tensor:
    """W [x_1, x_2, ...] + b as the sum of maps of the parts `[size, ...]`.

    A part that belongs to a neuron is mapped once for all synapses of the neuron.
    """
    weights = getattr(params, name).split([len(part) for part in x], -1)
    total = sum(torch.tensordot(weight, part, 1) for weight, part in zip(weights, x, strict=True))
    bias = getattr(params, f"{name}_bias", None)
    return total if bias is None else total + bias.view(-1, *[1] * (total.ndim - 1))


def _axis(times: int, odd: bool) -> str:
    """So many times the components of a state, which are 2 Z or 2 Z + 1."""
    return f"{2 * times}*Z+{times}" if odd else f"{2 * times}*Z"


def _fields(part: str, operator: str, odd: bool, inputs: str) -> list[tuple[str, Any]]:
    """The parameters of a part's network, which sees [state, x]; of an LSTM's state only the hidden half."""
    if operator.startswith("lstm"):
        shapes = {part: f"4*Z Z+{inputs}"}
    else:
        components = _axis(1 if operator.startswith("mlp") else 2, odd)
        shapes = {f"{part}_hidden": f"P {_axis(1, odd)}+{inputs}", part: f"{components} P"}
    fields = [
        [(name, TensorSpec(axes, "weight")), (f"{name}_bias", TensorSpec(axes.split()[0], "bias"))]
        for name, axes in shapes.items()
    ]
    return [(name, Annotated[Tensor, slot]) for pair in fields for name, slot in pair]


def _records(hidden: tuple[int, ...], body: str, synapse: str, odd: bool, passed: str, inputs: str) -> tuple[Any, Any]:
    """The types of the state and of the parameters, for N neurons of L types with 2 Z or 2 Z + 1 components each.

    `passed` is the number of components of a synapse that reach the neuron behind it, `inputs` the number of inputs of
    the network of a synapse.

    Components come first, so that the CPU vectorises over neurons, of which there are more.
    """
    N, L, components = "+".join(["I", *map(str, hidden)]), 1 + len(hidden), _axis(1, odd)
    shapes = {"h": f"{components} {N}", "w": f"{components} {N} {N}", "p": "I"}
    state = [(name, Annotated[Tensor, TensorSpec(axes, "memory")]) for name, axes in shapes.items()]
    fields = [
        ("embedding", Annotated[Tensor, TensorSpec(f"{L} E", "weight")]),
        ("start", Annotated[Tensor, TensorSpec(f"{components} {N} {N}", "fixed weight")]),
        *(_fields("body", body, odd, f"{passed}+E") if hidden else []),
        *_fields("synapse", synapse, odd, inputs),
        # Without the last bias: a softmax across neurons ignores a number that all of them get.
        *_fields("input", "mlp", odd, f"{passed}+E")[:-1],
    ]
    return NamedTuple("State", state), NamedTuple("Params", fields)


def make_network(
    inputs: int,
    neurons: int,
    num_layers: int,
    components: int,
    embedding: int,
    width: int,
    body: str,
    synapse: str,
    cells: str = "private",
    effect: str = "product",
    transmits: int = 0,
    gates: int = 1,
) -> tuple[Any, dict[str, int]]:
    """The step for `num_layers` hidden layers of as many neurons, and its sizes."""
    require(components >= 2, "components", "at least 2", components)
    fits = components % 2 == 0 or not _has_halves(body, synapse)
    require(fits, "components", "even for LSTM operators, whose state has two halves", components)
    for name, place in {"transmits": transmits, "gates": gates}.items():
        require(0 <= place < components, name, f"from 0 to {components - 1}", place)
    for name, size in {"inputs": inputs, "neurons": neurons, "embedding": embedding, "width": width}.items():
        require(size >= 1, name, "at least 1", size)
    require(num_layers >= 0, "num_layers", "at least 0", num_layers)
    kinds = (body, synapse, cells, effect, transmits, gates, components % 2 == 1)
    step = make_neurons_and_synapses((neurons,) * num_layers, *kinds)
    return step, {"I": inputs, "Z": components // 2, "E": embedding, "P": width}


def _has_halves(body: str, synapse: str) -> bool:
    """Whether a state is [hidden, cell] for one of the operators."""
    return body.startswith("lstm") or synapse.startswith("lstm")


def _check(body: str, synapse: str, cells: str, effect: str, odd: bool) -> None:
    """`InputError` unless all choices are known ones and go together."""
    require_name("body", body, OPERATORS)
    require_name("synapse", synapse, OPERATORS)
    require_name("cells", cells, CELLS)
    require_name("effect", effect, EFFECTS)
    require(not odd or not _has_halves(body, synapse), "odd", "False for LSTM operators", odd)


@family
@checked
def make_neurons_and_synapses(
    hidden: tuple[Size, ...] = (2,),
    body: str = "lstm",
    synapse: str = "gated",
    cells: str = "private",
    effect: str = "product",
    transmits: Count = 0,
    gates: Count = 1,
    odd: bool = False,
) -> Any:
    """The step for hidden layers of these sizes and the operators of bodies and synapses.

    Args:
        hidden: Neurons of each hidden layer.
        body: The operator of neurons, one of `OPERATORS`.
        synapse: The operator of synapses, one of `OPERATORS`.
        cells: "private": an LSTM as a synapse passes on its hidden half only, as an LSTM does elsewhere, and a cell of
            LSTM-id stays within +-3. "shown": it passes on its cells, too, which have no bound. Equation 5 of the paper
            has one product per component of the state and does not say which halves of an LSTM it means. With "shown",
            synapses with LSTM operators learn nothing: their cells grow by one per symbol and saturate the network.
        effect: "product": u_ij = w_ij h_j^0 (Eq. 5). "operator": u_ij is the new state of the synapse itself, so that
            the operator outputs the effect; the synapse then sees no u_ij. The paper reports that this fails to learn
            well (Sec. 7).
        transmits: The component of h_j that u_ij is a product with, counted from 0.
        gates: The component of h_j in the product h_i h_j^1 of Eqs. 6 and 13.
        odd: Whether states have 2 Z + 1 components, which LSTM operators cannot have.

    Raises:
        InputError: an operator, a reading or an effect is unknown, or a layer is empty.
    """
    _check(body, synapse, cells, effect, odd)
    is_half, is_product = synapse.startswith("lstm") and cells == "private", effect == "product"
    passes = "Z" if is_half else _axis(1, odd)
    sees = "+".join([_axis(3, odd), *([passes] if is_product else []), "2*E"])
    state_type, params_type = _records(hidden, body, synapse, odd, passes, sees)
    bound = BOUND if cells == "private" else None
    update_body = _update(body, torch.sigmoid, bound)
    update_synapse = _update(synapse, lambda output: output, bound)

    def neurons_and_synapses(state: Any, x: Any, params: Any) -> Any:
        """Neurons and synapses: networks that learn their update rules.

            u_ij = w_ij h_j^0
            w_ij <- OP(w_ij, [h_i, h_j, u_ij, h_i h_j^1, e_i, e_j])
            h_i <- OP(h_i, [sum_j u_ij, e_i])

        h_i and w_ij are vectors of 2 Z components, and j is over all neurons. For a synapse that is an LSTM, u_ij has
        the hidden half only. Layers are updated in turn and see the new values of earlier layers. Layer 0 observes x:
        its first component becomes x, its last one the error x - p. Last in turn, it predicts the next x. The
        prediction p is the output: component 0 of a softmax across its neurons of MLP([h_i, sum_j u_ij, e_i]).

        The printed equations add a component where the text replaces one, as here. The state of a synapse is the
        difference from a random initial value that is not learned. Without it the neurons of a layer would remain
        identical.

        Source: Gregor 2020 (arXiv:2003.03124), Eqs. 2-18.

        Can: overwrite, fade, recur, modify itself.
        """
        sizes = [len(x.x), *hidden]
        h, w = list(state.h.split(sizes, -1)), list((params.start + state.w).split(sizes, 1))
        e = [type_.unsqueeze(-1).expand(-1, size) for type_, size in zip(params.embedding, sizes, strict=True)]
        h[0] = torch.cat([x.x.unsqueeze(0), h[0][1:-1], (x.x - state.p).unsqueeze(0)])
        for layer in [*range(1, len(sizes)), 0]:
            # The outputs of the synapses before they change.
            bodies, types = torch.cat(h, -1), torch.cat(e, -1)
            u = _passed(w[layer], is_half) * bodies[transmits] if is_product else None
            w[layer] = _synapses(update_synapse, params, w[layer], u, h[layer], bodies, gates, e[layer], types)
            u = _passed(w[layer], is_half) if u is None else u
            inputs = [u.sum(-1), e[layer]]
            if layer:
                output = _network(params, "body", [_visible(h[layer], params, "body"), *inputs])
                h[layer] = update_body(h[layer], output, torch.zeros_like(h[layer]))
            else:
                h[0] = _network(params, "input", [h[0], *inputs]).softmax(-1)
        return state_type(torch.cat(h, -1), torch.cat(w, 1) - params.start, h[0][0]), h[0][0]

    prediction = Annotated[Tensor, TensorSpec("I", "value")]
    result: Any = tuple.__class_getitem__((state_type, prediction))
    records = {"state": state_type, "x": NeuronsAndSynapsesInputs, "params": params_type, "return": result}
    # Set here rather than written above: type checkers cannot follow types that are created at run time.
    neurons_and_synapses.__annotations__ = records
    return neurons_and_synapses


def _synapses(
    update: Update,
    params: Any,
    w: Tensor,
    u: Tensor | None,
    bodies: Tensor,
    others: Tensor,
    gates: int,
    own: Tensor,
    other: Tensor,
) -> Tensor:
    """The new synapses `[C, n, N]` of a layer's n neurons with all N."""
    own_bodies, other_bodies = bodies.unsqueeze(-1), others.unsqueeze(1)
    product = own_bodies * others[gates]
    effect = [] if u is None else [u]
    x = [
        _visible(w, params, "synapse"),
        own_bodies,
        other_bodies,
        *effect,
        product,
        own.unsqueeze(-1),
        other.unsqueeze(1),
    ]
    return update(w, _network(params, "synapse", x), product)


def _passed(w: Tensor, is_half: bool) -> Tensor:
    """The components of synapses that reach the neurons behind them."""
    return w.chunk(2)[0] if is_half else w


def _visible(state: Tensor, params: Any, part: str) -> Tensor:
    return state if hasattr(params, f"{part}_hidden") else state.chunk(2)[0]


neurons_and_synapses = make_neurons_and_synapses()
