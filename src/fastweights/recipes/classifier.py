"""A classifier of the user's own sequences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastweights.core.errors import require
from fastweights.core.metric import Display
from fastweights.experiments.experiment import Trial, own_data
from fastweights.recipes._sizes import WIDEST, check_sizes
from fastweights.training.settings._training import LARGEST_SEED, require_numbers
from fastweights.training.settings.supervised import Supervised


@dataclass(frozen=True, kw_only=True)
class ClassifierRecipe(Supervised):
    """A classifier of your sequences, texts or time series.

    Data: yours: DATA, a folder with one sub-folder per class, a CSV, TSV or .npz file.

    Args:
        data: Folder or archive with one sub-folder per class (.txt texts; .csv, .tsv or .npy arrays with one row per
            time step), CSV or TSV table with a column "label", or .npz file with arrays "x", "y" and optionally
            "lengths".
        validation_data: Data for validation in the same format; null for a random 10 % of each class.
        test_data: Data for the test in the same format; null for a random 10 % of each class.
        tokenizer: Tokenizer of texts, from "fastweights list tokenizers".
        max_length: Maximum number of time steps. Longer sequences are cut.
        decay: Number of final training steps with a linear decay of the learning rate to 0; at most `steps`.
        data_seed: Random seed of the split into training, validation and test data.
        layer: Layer: a name from "fastweights list layers", or a custom layer MODULE:NAME or PATH.py:NAME. Several
            names with commas alternate over the blocks: "delta-net,softmax-attention".
        conv_size: Width of the causal convolution in front of each layer, in time steps; 0 for none.
        d_model: Size of the representation of a time step.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        norm: Position of LayerNorm: before ("pre") or after ("post") each layer.
    """

    data: Path | None = None
    validation_data: Path | None = None
    test_data: Path | None = None
    tokenizer: Literal["bytes", "characters", "words", "bpe"] = "bytes"
    max_length: int = 1000
    data_seed: int = 0
    layer: str = "delta-net"
    conv_size: int = 4
    d_model: int = 64
    num_layers: int = 2
    num_heads: int = 4
    d_ff: int = 128
    dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"

    steps: int = 4000
    batch_size: int = 32
    learning_rate: float = 2e-3
    decay: int = 2000
    max_grad_norm: float = 1.0
    evaluate_every: int = 100
    patience: int = 10

    DATA: ClassVar[tuple[str, ...]] = ("data", "validation_data", "test_data", "tokenizer", "max_length", "data_seed")
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "max_length": 50},
            **{"steps": 20, "decay": 10, "evaluate_every": 10, "batch_size": 8},
        },
    }
    POSITIONAL: ClassVar[str] = "data"
    USE: ClassVar[str] = "classify RUN FILE"

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", min(self.decay, self.steps))
        super().__post_init__()
        check_sizes(self)
        require(self.data is not None, "data", "a folder or a file", "none", "Add --data PATH.")
        require_numbers(self, ("max_length",), 1)
        require_numbers(self, ("data_seed",), 0, LARGEST_SEED)
        require_numbers(self, ("conv_size",), 0, WIDEST)
        require(self.conv_size != 1, "conv_size", "0 or at least 2", self.conv_size)

    def trial(self) -> Trial:
        """The trial of these flags."""
        files = {name: str(path) for name in ("data", "validation_data", "test_data") if (path := getattr(self, name))}
        task = {**files, **{name: getattr(self, name) for name in ("tokenizer", "max_length", "data_seed")}}
        sizes = ("layer", "d_model", "num_layers", "num_heads", "d_ff", "dropout", "conv_size", "norm")
        model = {name: getattr(self, name) for name in sizes}
        return Trial("sequence-files", task, "sequence-classifier", model, Supervised.among(self))


TABLE = own_data("Classification of your sequences", Display("test accuracy, %", "percent"))
