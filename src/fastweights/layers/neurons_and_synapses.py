"""Gregor's neurons and synapses as a layer."""

from typing import Any

from fastweights.cell import Cell
from fastweights.cells.neurons_and_synapses import make_network
from fastweights.core.arguments import Count, Size
from fastweights.layers.base.fast_weight import FastWeight


class NeuronsAndSynapses(FastWeight):
    """Layer of neurons and synapses that learn their update rules.

        u_ij = w_ij h_j^0
        w_ij <- OP(w_ij, [h_i, h_j, u_ij, h_i h_j^1, e_i, e_j])
        h_i <- OP(h_i, [sum_j u_ij, e_i])

    The sum is over all neurons j. The input layer observes a linear map of x, and y is a linear map of its prediction.
    Synapses start like the weights of ordinary networks.

    Source: Gregor 2020 (arXiv:2003.03124), Eqs. 2-18. The paper gives no sizes except the components: 6 and 14 in its
    figures.

    Args:
        d_model: Size D of the input and the output.
        num_heads: Number of independent networks.
        inputs: Number of neurons of the input layer.
        neurons: Number of neurons of a hidden layer.
        num_layers: Number of hidden layers, which are updated in turn; 0 for none.
        components: Size of the state of every neuron and synapse. It must be even for LSTM operators.
        embedding: Size of the embedding of a layer.
        width: Number of hidden units of the networks of the operators.
        body: Operator that updates a neuron: "mlp", "mlp-tanh", "lstm", "lstm-sigma", "lstm-id" or "gated".
        synapse: Operator that updates a synapse, one of the same names.
        cells: "private" or "shown": whether a synapse that is an LSTM passes on its cells, see
            `make_neurons_and_synapses`.
        effect: "product": a synapse passes on its state times a component of the other neuron. "operator": it passes on
            its state alone, see `make_neurons_and_synapses`.
        transmits: Component of the other neuron in that product, counted from 0.
        gates: Component of the other neuron in the product h_i h_j^1.
        initial_state: Initial state, as in `FastWeight`. Synapses add it to their random initial values.

    Example:
        >>> import torch
        >>> layer = NeuronsAndSynapses(
        ...     d_model=8, inputs=4, neurons=2, num_layers=0, backend="reference"
        ... )
        >>> y, state = layer(torch.randn(2, 3, 8))
        >>> y.shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        d_model: Size,
        num_heads: Size = 1,
        inputs: Size = 16,
        neurons: Size = 4,
        num_layers: Count = 1,
        components: Size = 6,
        embedding: Size = 4,
        width: Size = 16,
        body: str = "lstm",
        synapse: str = "gated",
        cells: str = "private",
        effect: str = "product",
        transmits: Count = 0,
        gates: Count = 1,
        backend: str = "auto",
        initial_state: Any = "zero",
    ) -> None:
        kinds = (body, synapse, cells, effect, transmits, gates)
        step, sizes = make_network(inputs, neurons, num_layers, components, embedding, width, *kinds)
        cell = Cell.from_function(step)
        super().__init__(
            d_model, num_heads, cell, d_model, d_model, backend=backend, sizes=sizes, initial_state=initial_state
        )
