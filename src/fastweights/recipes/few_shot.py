"""A network that classifies images of new classes from a few examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastweights.core.errors import require
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._sizes import WIDEST, check_sizes
from fastweights.training.settings._training import require_numbers
from fastweights.training.settings.supervised import Supervised


@dataclass(frozen=True, kw_only=True)
class FewShotRecipe(Supervised):
    """A few-shot classifier of images, trained on Omniglot or on your images.

    Data: yours: DATA, a folder with one sub-folder of images per class; else Omniglot.

    Source: the data are Omniglot (Lake et al. 2015). The models are smaller versions of those of Irie et al. 2022,
    Sec. 4.1.

    Args:
        data: Folder or archive with one sub-folder of images per class; null for Omniglot.
        grey: Greyscale images, instead of colour; only with your data.
        side: Height and width of the images in pixels.
        ways: Number of classes per episode.
        shots: Number of examples per class.
        labels: Time of the labels. "synchronous": examples come with their labels, and one image is the query.
            "delayed": each image is a query, and its label comes one time step later.
        rotations: Data augmentation: training classes rotated by 90, 180 and 270 degrees are additional classes.
        shift: Data augmentation: maximum shift of training images in pixels.
        held_out: Number of test episodes. Validation has a tenth as many.
        layer: Layer: a name from "fastweights list layers", or a custom layer MODULE:NAME or PATH.py:NAME. Several
            names with commas alternate over the blocks: "delta-net,softmax-attention".
        d_model: Size of the representation of a time step.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        norm: Position of LayerNorm: before ("pre") or after ("post") each layer, or on the skip connection
            ("raw-input").
        width: Number of channels of the four convolutions of the vision encoder.
        vision_loss: Weight of a separate loss of the vision encoder, that of a prototypical network; 0 for none.
    """

    data: Path | None = None
    grey: bool = False
    side: int = 16
    ways: int = 5
    shots: int = 1
    labels: Literal["synchronous", "delayed"] = "synchronous"
    rotations: bool = True
    shift: int = 0
    held_out: int = 10_000
    layer: str = "delta-net"
    d_model: int = 128
    num_layers: int = 2
    num_heads: int = 32
    d_ff: int = 256
    dropout: float = 0.0
    norm: Literal["pre", "post", "raw-input"] = "pre"
    width: int = 32
    vision_loss: float = 1.0

    steps: int = 4000
    batch_size: int = 128
    learning_rate: float = 1e-3
    decay: int = 2000
    betas: tuple[float, float] = (0.9, 0.995)
    evaluate_every: int = 250

    DATA: ClassVar[tuple[str, ...]] = (
        "data",
        "grey",
        "side",
        "ways",
        "shots",
        "labels",
        "rotations",
        "shift",
        "held_out",
    )
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "width": 4, "held_out": 80},
            **{"steps": 4, "decay": 2, "evaluate_every": 2, "batch_size": 4},
        },
    }

    POSITIONAL: ClassVar[str] = "data"
    USE: ClassVar[str] = "classify RUN FOLDER"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)
        require(16 <= self.side <= 1024, "side", "from 16 to 1024, as four poolings halve it", self.side)
        require(not self.grey or bool(self.data), "grey", "left out without DATA", True)
        require_numbers(self, ("width",), 1, WIDEST)
        require_numbers(self, ("held_out",), 10)
        require_numbers(self, ("vision_loss",), 0)

    def trial(self) -> Trial:
        """The task, the model and the settings of training."""
        shown = {name: getattr(self, name) for name in ("ways", "shots", "labels", "side", "rotations", "shift")}
        own = {"folder": str(self.data), "channels": 1 if self.grey else 3} if self.data else {}
        sizes = ("layer", "d_model", "num_layers", "num_heads", "d_ff", "dropout", "norm", "vision_loss")
        model = {**{name: getattr(self, name) for name in sizes}, "vision_options": {"width": self.width}}
        training = Supervised.among(self)
        held_out = {"validation_size": self.held_out // 10, "test_size": self.held_out}
        task = {**shown, **own, **held_out, "unlabelled": "corrected"}
        return Trial("image-folder" if own else "omniglot", task, "few-shot-network", model, training)


MODELS = {
    "delta-net": "DeltaNet",
    "gated-delta": "Gated DeltaNet",
    "linear-attention": "Linear Transformer",
    "softmax-attention": "Transformer",
    "srwm": "SRWM",
}
COLUMN = "omniglot"


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train few-shot` with another layer."""
    return FewShotRecipe(**{**FewShotRecipe.PRESETS[preset], "layer": model}).trial()


EXPERIMENT = Experiment(
    title="Few-shot classification of characters: five classes, one drawing each",
    source="Our own check, on Omniglot (Lake, Salakhutdinov and Tenenbaum 2015)",
    display=Display("test accuracy, %", "percent"),
    models=MODELS,
    columns={COLUMN: "Omniglot, 1-shot"},
    published={},
    presets={
        "smoke": Preset((COLUMN,), tuple(MODELS)[:2]),
        "cpu": Preset((COLUMN,), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(Claim("DeltaNet classifies nine of ten.", "", above(("delta-net", COLUMN), 90.0)),),
    notes=(
        "All layers have the settings of `fastweights train few-shot`: those of DeltaNet in irie2022/table-1, for half "
        "as many training steps.",
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
