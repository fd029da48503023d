"""One recurrent layer between an embedding and a small network."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.layers import LayerKind, layer_options, make_layer
from fastweights.models._reader import MappedEmbedding, make_reader
from fastweights.models._signalled import Signalled
from fastweights.models.dropout import Dropout


class RecurrentModel(nn.Module):
    """y = F h_T for a question at the end, y_t = F h_t for one at every step; h from one layer of any kind.

    Source: Ba et al. 2016, Sec. 4.1 (symbols of 50 numbers, mapped to 100, R units, 100 hidden units); Irie et
    al. 2021, Sec. 4.2 (the LSTM: no hidden layer, dropout before and after).

    Args:
        kind: "tokens", "pairs" or "features", as in `Task.input_kind`.
        input_size: Number of symbols or features.
        output_size: Number of classes.
        layer: A layer, as in `make_layer`, with `options`.
        units: R, the size of the layer.
        embedding: Size of the vector of a symbol.
        projection: Size to which the vector is mapped; 0 for none. A layer without `input_size` has another linear map
            in front.
        hidden: Number of rectified linear units between the layer and the classes; 0 for none.
        dropout: Probability of dropping a unit before and after the layer.
        num_heads: Heads of the layer, if it has any.
        signals: Control signals by name, such as "store" and "integrate", for a layer that accepts them.
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
        reader = make_reader(kind, input_size, embedding)
        width = projection or embedding
        projections = [nn.Linear(embedding, projection)] if projection else []
        has_input_size = "input_size" in layer_options(layer)
        adapter = [] if has_input_size or width == units else [nn.Linear(width, units)]
        size_option = {"input_size": width} if has_input_size else {}
        memory = make_layer(layer, units, num_heads, **size_option, **(options or {}))
        sequence = MappedEmbedding if kind == "tokens" else nn.Sequential
        self.reader = nn.Sequential(sequence(reader, *projections, *adapter), Dropout(dropout))
        self.layer = Signalled(memory, signals) if signals else memory
        hidden_layers = [nn.Linear(units, hidden), nn.ReLU()] if hidden else []
        self.head = nn.Sequential(Dropout(dropout), *hidden_layers, nn.Linear(hidden or units, output_size))

    def forward(self, inputs: Tensor, answers: int) -> Tensor:
        """Maps inputs of a task, `[B, T]` or `[B, T, .]`, to outputs `[B, answers, output_size]` for the last steps."""
        h, _ = self.layer(self.reader(inputs))
        outputs: Tensor = self.head(h[:, -answers:])
        return outputs
