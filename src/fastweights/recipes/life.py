"""A life of reading, with any layer: what does it remember of what it read?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastweights.core.measurements import Detail
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._sizes import WIDEST
from fastweights.training.settings._training import require_numbers
from fastweights.training.settings.remembering import Remembering

NEURONS = "neurons-and-synapses"
OF_NEURONS = ("neurons", "num_layers", "components", "embedding", "width", "body", "synapse")
OPERATORS = Literal["mlp", "mlp-tanh", "lstm", "lstm-sigma", "lstm-id", "gated"]


@dataclass(frozen=True, kw_only=True)
class LifeRecipe(Remembering):
    """Any layer in one long life of reading, asked for what it read before: does it learn to remember?

    Source: Gregor 2020, Sec. 5; there with learned update rules alone, the layer "neurons-and-synapses".

    Args:
        text: A UTF-8 text file to read instead of the book.
        characters: Of the text, from its beginning; 0 for all.
        merged: Whether a run of what is no letter is one symbol.
        elsewhere: Texts that are read in the end, and not learned from, with commas between: "shakespeare", "babi",
            "wikipedia", "noise" (letters at random), or files.
        layer: A name from "fastweights list layers", or your own: MODULE:NAME or PATH.py:NAME.
        units: Size of the layer; for all layers but "neurons-and-synapses".
        num_heads: Memories of the layer, likewise.
        conv_size: Width of the causal convolution in front of it, likewise; 0 for none.
        neurons: Neurons of a hidden layer of "neurons-and-synapses".
        num_layers: Its hidden layers.
        components: Of the state of each of its neurons and synapses.
        embedding: Size of the embedding of one of its layers.
        width: Hidden units of its operators' networks.
        body: What updates a neuron.
        synapse: What updates a synapse.
    """

    text: Path | None = None
    characters: int = 0
    merged: bool = False
    elsewhere: str = ""
    layer: str = NEURONS
    units: int = 32
    num_heads: int = 2
    conv_size: int = 2
    neurons: int = 2
    num_layers: int = 1
    components: int = 6
    embedding: int = 4
    width: int = 8
    body: OPERATORS = "lstm"
    synapse: OPERATORS = "gated"

    steps: int = 20_000
    evaluate_every: int = 2_500
    learning_rate: float = 3e-3

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {"layer": "lstm", "steps": 20, "evaluate_every": 10, "characters": 2_000, "units": 8, "width": 4},
        "long": {"steps": 100_000, "evaluate_every": 10_000},
    }

    USE: ClassVar[str] = "evaluate RUN"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("characters", "conv_size", "num_layers"), 0, WIDEST)
        # Files are found again from any folder.
        texts = [str(Path(name).resolve()) if Path(name).is_file() else name for name in self.elsewhere.split(",")]
        object.__setattr__(self, "elsewhere", ",".join(texts))
        require_numbers(self, ("units", "num_heads", "neurons", "components", "embedding", "width"), 1, WIDEST)

    def trial(self) -> Trial:
        """What is trained."""
        text: dict[str, Any] = {name: getattr(self, name) for name in ("characters", "merged")}
        text |= {"text": self.text and str(self.text)}
        text |= {"elsewhere": tuple(self.elsewhere.split(","))} if self.elsewhere else {}
        training = Remembering.among(self)
        if self.layer == NEURONS:
            return Trial("letters", text, "neuron-network", {n: getattr(self, n) for n in OF_NEURONS}, training)
        model = {name: getattr(self, name) for name in ("layer", "units", "num_heads", "conv_size")}
        return Trial("letters", text, "plain-reader", model, training)


MODELS = {
    NEURONS: "Neurons and synapses",
    "delta-net": "DeltaNet",
    "recurrent-delta-net": "RDN",
    "srwm": "SRWM",
    "fast-weight-rnn": "Fast weights (Ba et al.)",
    "lstm": "LSTM",
}
DELAYS = {"10": "delay 10", "80": "delay 80"}
RATES = {"srwm": 1e-4}
"""Where another than that of `fastweights train life` was best in life-rates."""


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train life` with another layer and delay."""
    rate = {"learning_rate": RATES[model]} if model in RATES else {}
    return LifeRecipe(**{**LifeRecipe.PRESETS[preset], "layer": model, "delay": int(column), **rate}).trial()


EXPERIMENT = Experiment(
    title="What memories learn to remember in a life of reading",
    source="A check of our own, after Gregor 2020, Sec. 5",
    display=Display("bits a symbol of the past, in a text read once"),
    models=MODELS,
    columns=DELAYS,
    published={},
    presets={
        "smoke": Preset(("10",), ("delta-net", "lstm")),
        "cpu": Preset(tuple(DELAYS), tuple(MODELS), seeds=3),
        "long": Preset(tuple(DELAYS), tuple(MODELS), seeds=3),
    },
    trial=trial,
    claims=(
        Claim("DeltaNet remembers more than the LSTM at delay 80.", "", below(*places("80", "delta-net", "lstm"))),
    ),
    notes=(
        "A snippet begins with what the memory holds and with bodies (what a layer said last, the tail of a "
        "convolution, an LSTM's h) at 0. An LSTM's cells are kept: else it could remember nothing.",
        "All layers have the settings of `fastweights train life`; rates are those of life-rates, found at delay 10.",
        "The life itself goes on with the state that it has. On other text a layer is born anew, with the weights that "
        "were best on validation data: what they came to rely on in a long life is not there then.",
        "A layer is all that there is between embeddings and letters: what does not read its input past the memory, as "
        "an LSTM does, can say nothing that is not in the memory.",
    ),
    details={Detail("final", delay): f"the life, at its end, {label}" for delay, label in DELAYS.items()},
    sanity="This comparison is ours, without numbers of a paper.",
)
