"""Gregor's neurons and synapses as a layer."""

from typing import Any

from fastweights.cell import Cell
from fastweights.cells.neurons_and_synapses import make_network
from fastweights.core.arguments import Count, Size
from fastweights.layers.base.fast_weight import FastWeight


class NeuronsAndSynapses(FastWeight):
    """w_ij <- OP(w_ij, [h_i, h_j, u_ij, h_i h_j^1, e_i, e_j]), h_i <- OP(h_i, [sum_j u_ij, e_i])

    u_ij = w_ij h_j^0, over all neurons j. The input layer observes a linear map of x, and y is a linear map of its
    prediction.
    Synapses start like the weights of ordinary networks.

    Source: Gregor 2020, Eqs. 2-18. The paper gives no sizes except the components: 6 and 14 in its figures.

    Args:
        d_model: Size of the input and output.
        heads: Number of independent networks.
        inputs: Number of neurons of the input layer.
        neurons: Number of neurons per hidden layer.
        depth: Number of hidden layers, which are updated in turn; 0 for none.
        components: Number of components of the state of every neuron and synapse, even.
        embedding: Size of the embedding of a layer.
        width: Number of hidden units of the networks of the operators.
        body: Operator that updates a neuron: "mlp", "mlp-tanh", "lstm", "lstm-sigma", "lstm-id" or "gated".
        synapse: Operator that updates a synapse, one of the same.
        cells: "private" or "shown": whether an LSTM as a synapse outputs its cells, see `make_neurons_and_synapses`.
        backend: The backend of `scan`.
        initial: The initial state, as in `FastWeight`: synapses add it to their random start.
    """

    def __init__(
        self,
        d_model: Size,
        heads: Size = 1,
        inputs: Size = 16,
        neurons: Size = 4,
        depth: Count = 1,
        components: Size = 6,
        embedding: Size = 4,
        width: Size = 16,
        body: str = "lstm",
        synapse: str = "gated",
        cells: str = "shown",
        backend: str = "auto",
        initial: Any = "zero",
    ) -> None:
        step, sizes = make_network(inputs, neurons, depth, components, embedding, width, body, synapse, cells)
        cell = Cell.from_function(step)
        super().__init__(d_model, heads, cell, d_model, d_model, backend=backend, sizes=sizes, initial=initial)
