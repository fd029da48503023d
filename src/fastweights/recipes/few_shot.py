"""A network that names pictures of new classes by a few examples."""

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
    """Pictures of new classes by a few examples of each, with any layer, after training on other classes.

    Data: yours: --folder FOLDER, a sub-folder of pictures per class; without it, Omniglot.

    Source: the data are Omniglot (Lake et al. 2015); the models those of Irie et al. 2022, Sec. 4.1, made small.

    Args:
        folder: A folder with a sub-folder of pictures per class, or an archive of one; Omniglot if null.
        grey: Whether the pictures in the folder are grey.
        side: Pixels of a side, to which pictures are scaled.
        ways: Classes of an episode.
        shots: Examples of each.
        labels: "synchronous": examples come with their labels, and one picture is to be named. "delayed": every picture
            is to be named, and is told one step later.
        rotations: Whether training classes turned by 90, 180 and 270 degrees are classes of their own.
        shift: Pixels by which each training picture is moved at most.
        held_out: Episodes of the test; a tenth as many validate.
        layer: A name from "fastweights list layers", or your own: MODULE:NAME or PATH.py:NAME. Several with commas
            between them take turns over the blocks.
        d_model: Size of the representation.
        num_layers: Number of blocks.
        num_heads: Memories a layer.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit of the blocks.
        norm: LayerNorm before ("pre") or after ("post") every layer, or on what goes round it ("raw-input").
        width: Channels of the vision net, four convolutions.
        vision_loss: Weight of a loss of the vision net's own, that of a prototypical network; 0 for none.
    """

    folder: Path | None = None
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

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "width": 4, "held_out": 80},
            **{"steps": 4, "decay": 2, "evaluate_every": 2, "batch_size": 4},
        },
    }

    USE: ClassVar[str] = "adapt RUN FOLDER"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self)
        require(16 <= self.side <= 1024, "side", "from 16 to 1024, as four poolings halve it", self.side)
        require(not self.grey or bool(self.folder), "grey", "false without --folder", True)
        require_numbers(self, ("width",), 1, WIDEST)
        require_numbers(self, ("held_out",), 10)
        require_numbers(self, ("vision_loss",), 0)

    def trial(self) -> Trial:
        """What is trained."""
        shown = {name: getattr(self, name) for name in ("ways", "shots", "labels", "side", "rotations", "shift")}
        own = {"folder": str(self.folder), "channels": 1 if self.grey else 3} if self.folder else {}
        sizes = ("layer", "d_model", "num_layers", "num_heads", "d_ff", "dropout", "norm", "vision_loss")
        model = {**{name: getattr(self, name) for name in sizes}, "vision_options": {"width": self.width}}
        training = Supervised.among(self)
        held_out = {"validation_size": self.held_out // 10, "test_size": self.held_out}
        task = {**shown, **own, **held_out, "unlabelled": "corrected"}
        return Trial("picture-folder" if own else "omniglot", task, "few-shot-network", model, training)


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
    title="Characters by one drawing of each of five",
    source="A check of our own, on Omniglot (Lake, Salakhutdinov and Tenenbaum 2015)",
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
        "as many updates.",
    ),
    sanity="This comparison is ours, without numbers of a paper.",
)
