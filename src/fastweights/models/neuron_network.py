"""Gregor's neurons as a model of symbols: it observes symbols and predicts their distribution."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.cell import Cell
from fastweights.cells.neurons_and_synapses import make_network
from fastweights.core.arguments import Count, Size, checked
from fastweights.dispatch import scan
from fastweights.layers.base.initial_state import InitialState
from fastweights.layers.base.slow_weights import SlowWeights
from fastweights.models._tokens import check_known, check_targets, check_tokens


class NeuronNetwork(nn.Module):
    """Neurons and synapses that learn their update rules, as a model of symbols.

        p(x_(t+1)) = softmax(h^0)

    The softmax is across the input neurons, each of which observes one symbol. h^0 is component 0 of their state. The
    state is the neurons `h` and the synapses `w`. The trained parameters are the rules that update them, the same for
    all neurons. Synapses start at random, like the weights of ordinary networks.

    Source: Gregor 2020 (arXiv:2003.03124), Eqs. 2-18. The paper gives no sizes except the components: 6 and 14 in its
    figures.

    Args:
        vocab_size: Number of symbols N, and of input neurons.
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
        backend: Backend of `scan`: "auto", "compiled", "chunkwise" or "reference".

    Example:
        >>> model = NeuronNetwork(vocab_size=4, neurons=2, backend="reference")
        >>> log_p, state = model(torch.randint(4, (2, 3)))
        >>> log_p.shape
        torch.Size([2, 3, 4])
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
        self.start = InitialState.of_heads(self.cell, 1, sizes, "zero")
        self.register_buffer("symbols", torch.empty(vocab_size, vocab_size), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the one-hot vectors. The rules initialise themselves."""
        nn.init.eye_(self.symbols)

    def forward(self, tokens: Tensor, state: Any = None, targets: Tensor | None = None) -> tuple[Tensor, Any]:
        """Computes the log-probabilities of the next symbol, or the losses of targets.

        Args:
            tokens: Symbols, int `[B, T]`.
            state: State before the first symbol. None: the initial state.
            targets: Targets, int `[B, T]`.

        Returns:
            The log-probabilities `[B, T, N]`, or with targets the losses in nats, `[B, T]`; and the state after the
            last symbol.
        """
        check_tokens(tokens)
        check_known(tokens, len(self.symbols))
        observed = self.symbols[tokens].unsqueeze(2)
        state = self.initial_state(len(tokens)) if state is None else state
        p, state = scan(self.cell, self.cell.Inputs(observed), state, self.rules(), backend=self.backend)
        # Where the softmax rounds to 0, the logarithm stays finite and its gradient is 0.
        log_p = p.squeeze(2).clamp_min(torch.finfo(p.dtype).tiny).log()
        if targets is None:
            return log_p, state
        check_targets(targets, tokens)
        check_known(targets, len(self.symbols), "targets")
        return -log_p.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the state before the first symbol.

        Args:
            batch_size: Number of sequences B.

        Returns:
            The state, with the batch as the first axis of every tensor.
        """
        return self.start.of_batch(batch_size, self)
