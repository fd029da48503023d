"""One recurrent layer between an embedding and a small network."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.layers import LayerKind, layer_options, make_layer
from fastweights.models._input_embedding import MappedEmbedding, make_input_embedding
from fastweights.models._with_controls import WithControls
from fastweights.models.dropout import Dropout


class RecurrentModel(nn.Module):
    """Recurrent model for a task: input embedding, one layer, small output network.

        y_t = F h_t

    h is the output of one layer of any kind, and F a linear map with an optional hidden layer. A question at the end is
    answered from h_T.

    Source: Ba et al. 2016 (arXiv:1610.06258), Sec. 4.1 (symbols of 50 numbers, mapped to 100, R units, 100 hidden
    units); Irie et al. 2021 (arXiv:2106.06295), Sec. 4.2 (the LSTM: no hidden layer, dropout before and after).

    Args:
        kind: Kind of inputs: "tokens", "pairs" or "features", as in `Task.input_kind`.
        input_size: Number of symbols or features.
        output_size: Number of classes.
        layer: Layer, as in `make_layer`.
        units: Number of units R of the layer.
        embedding: Size of the embedding of a symbol.
        projection: Size to which the embedding is projected; 0 for no projection. A layer without `input_size` has
            another linear map in front.
        hidden: Number of ReLU units between the layer and the output; 0 for none.
        dropout: Dropout probability before and after the layer.
        num_heads: Number of heads of the layer. Layers without heads ignore it.
        options: Options of the layer, by name.
        signals: Control signals by name, such as "store" and "integrate", for a layer that accepts them.

    Example:
        >>> import torch
        >>> model = RecurrentModel("tokens", 10, 3, layer="lstm", units=16)
        >>> model(torch.randint(10, (2, 8)), answers=1).shape
        torch.Size([2, 1, 3])
    """

    @checked
    def __init__(
        self,
        kind: str,
        input_size: Size,
        output_size: Size,
        layer: LayerKind,
        units: Size,
        embedding: Size = 50,
        projection: Count = 100,
        hidden: Count = 100,
        dropout: Probability = 0.0,
        num_heads: Size = 1,
        options: dict[str, Any] | None = None,
        signals: dict[str, list[bool]] | None = None,
    ) -> None:
        super().__init__()
        embed = make_input_embedding(kind, input_size, embedding)
        width = projection or embedding
        projections = [nn.Linear(embedding, projection)] if projection else []
        has_input_size = "input_size" in layer_options(layer)
        adapter = [] if has_input_size or width == units else [nn.Linear(width, units)]
        size_option = {"input_size": width} if has_input_size else {}
        memory = make_layer(layer, units, num_heads, **size_option, **(options or {}))
        sequence = MappedEmbedding if kind == "tokens" else nn.Sequential
        self.input_embedding = nn.Sequential(sequence(embed, *projections, *adapter), Dropout(dropout))
        self.layer = WithControls(memory, signals) if signals else memory
        hidden_layers = [nn.Linear(units, hidden), nn.ReLU()] if hidden else []
        self.head = nn.Sequential(Dropout(dropout), *hidden_layers, nn.Linear(hidden or units, output_size))

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Computes the outputs for the last time steps.

        Args:
            inputs: Inputs of a task: int `[B, T]` for tokens, int `[B, T, 2]` for pairs, `[B, T, input_size]` for
                features.
            answers: Number P of time steps at the end that have outputs.

        Returns:
            The logits `[B, P, output_size]`.
        """
        h, _ = self.layer(self.input_embedding(inputs))
        outputs: Tensor = self.head(h[:, -answers:])
        return outputs
