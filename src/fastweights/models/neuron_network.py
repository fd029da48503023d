"""Gregor's neurons as a model of symbols: it observes symbols and predicts their distribution."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.cells.neurons_and_synapses import make_network
from fastweights.core.arguments import Count, Size, checked
from fastweights.dispatch import scan
from fastweights.layers.base.initial_state import Start
from fastweights.layers.base.slow_weights import SlowWeights
from fastweights.models._tokens import check_known, check_tokens


class NeuronNetwork(nn.Module):
    """p(x_{t+1}) = h^0, component 0 of a softmax across input neurons, of which each observes one symbol.

    The state is the bodies `h` and the synapses `w`. The trained parameters are the rules that update them, the same
    for all neurons. Synapses start at random, like the weights of ordinary networks.
    Source: Gregor 2020, Eqs. 2-18. The paper gives no sizes except the components: 6 and 14 in its figures.

    Args:
        vocab_size: Number of symbols, and of input neurons.
        neurons: Neurons of a hidden layer.
        num_layers: Number of hidden layers, which take turns; 0 for none.
        components: Of the state of every neuron and synapse; even for LSTM operators.
        embedding: Size of a layer's embedding.
        width: Hidden units of the operators' networks.
        body: What updates a neuron: "mlp", "mlp-tanh", "lstm", "lstm-sigma", "lstm-id" or "gated".
        synapse: What updates a synapse, one of the same.
        cells: "private" or "shown": whether an LSTM as a synapse passes on its cells, see `make_neurons_and_synapses`.
        effect: "product" or "operator": whether a synapse passes on its state times a component of the other neuron, or
            its state alone, see `make_neurons_and_synapses`.
        transmits: The component of the other neuron in that product, counted from 0.
        gates: The component of the other neuron in the product h_i h_j^1.
        backend: The backend of `scan`.
    """

    symbols: Tensor

    @checked
    def __init__(
        self,
        vocab_size: Size,
        neurons: Size = 2,
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
    ) -> None:
        super().__init__()
        kinds = (body, synapse, cells, effect, transmits, gates)
        step, sizes = make_network(vocab_size, neurons, num_layers, components, embedding, width, *kinds)
        self.cell = Cell.from_function(step)
        self.backend = backend
        self.rules = SlowWeights(self.cell, 1, sizes)
        self.start = Start.of_heads(self.cell, 1, sizes, "zero")
        self.register_buffer("symbols", torch.empty(vocab_size, vocab_size), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the one-hot vectors. The rules initialise themselves."""
        nn.init.eye_(self.symbols)

    def forward(self, tokens: Tensor, state: Any = None, targets: Tensor | None = None) -> tuple[Tensor, Any]:
        """Maps tokens int `[B, T]` to log-probabilities `[B, T, N]` of the next token and the state after the last one.

        With targets int `[B, T]` it returns the losses in nats instead, `[B, T]`.
        """
        check_tokens(tokens)
        check_known(tokens, len(self.symbols))
        observed = self.symbols[tokens].unsqueeze(2)
        state = self.initial_state(len(tokens)) if state is None else state
        p, state = scan(self.cell, self.cell.Inputs(observed), state, self.rules(), backend=self.backend)
        # Where the softmax rounds to 0, the logarithm stays finite and its gradient is 0.
        log_p = p.squeeze(2).clamp_min(torch.finfo(p.dtype).tiny).log()
        return (log_p if targets is None else -log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first token, batch first in every leaf."""
        return self.start.of_batch(batch_size, self)
