"""Online memory: a layer reads a text once, and predicts earlier passages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastweights.core.measurements import Detail
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, below, places
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes._sizes import WIDEST
from fastweights.training.settings._training import require_numbers
from fastweights.training.settings.online_memory import OnlineMemory

NEURONS = "neurons-and-synapses"
OF_NEURONS = ("neurons", "num_layers", "components", "embedding", "width", "body", "synapse")
OPERATORS = Literal["mlp", "mlp-tanh", "lstm", "lstm-sigma", "lstm-id", "gated"]


@dataclass(frozen=True, kw_only=True)
class OnlineMemoryRecipe(OnlineMemory):
    """A layer trained online on one long text, and tested on its recall of earlier passages.

    Source: Gregor 2020, Sec. 5, with learned update rules, the layer "neurons-and-synapses".

    Args:
        text: UTF-8 text file to use instead of The Wonderful Wizard of Oz.
        characters: Number of characters from the start of the text; 0 for all.
        merged: One symbol for a run of characters other than letters, instead of one symbol per character.
        test_texts: Additional test texts, with commas: "shakespeare", "babi", "wikipedia", "noise" (random letters), or
            files.
        layer: Layer: a name from "fastweights list layers", or a custom layer MODULE:NAME or PATH.py:NAME.
        units: Size of the layer; unused by "neurons-and-synapses".
        num_heads: Number of heads of the layer; unused by "neurons-and-synapses".
        conv_size: Width of the causal convolution in front of the layer; 0 for none; unused by "neurons-and-synapses".
        neurons: Number of neurons per hidden layer of "neurons-and-synapses".
        num_layers: Number of hidden layers of "neurons-and-synapses".
        components: Number of components of the state of a neuron or a synapse of "neurons-and-synapses".
        embedding: Size of the layer embeddings of "neurons-and-synapses".
        width: Number of hidden units of the operators of "neurons-and-synapses".
        body: Update operator of neurons of "neurons-and-synapses".
        synapse: Update operator of synapses of "neurons-and-synapses".
    """

    text: Path | None = None
    characters: int = 0
    merged: bool = False
    test_texts: str = ""
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

    DATA: ClassVar[tuple[str, ...]] = ("text", "characters", "merged", "test_texts")
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
        texts = [str(Path(name).resolve()) if Path(name).is_file() else name for name in self.test_texts.split(",")]
        object.__setattr__(self, "test_texts", ",".join(texts))
        require_numbers(self, ("units", "num_heads", "neurons", "components", "embedding", "width"), 1, WIDEST)

    def trial(self) -> Trial:
        """The task, the model and the settings of training."""
        text: dict[str, Any] = {name: getattr(self, name) for name in ("characters", "merged")}
        text |= {"text": self.text and str(self.text)}
        text |= {"test_texts": tuple(self.test_texts.split(","))} if self.test_texts else {}
        training = OnlineMemory.among(self)
        if self.layer == NEURONS:
            return Trial("letters", text, "neuron-network", {n: getattr(self, n) for n in OF_NEURONS}, training)
        model = {name: getattr(self, name) for name in ("layer", "units", "num_heads", "conv_size")}
        return Trial("letters", text, "symbol-model", model, training)


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
"""The best rates of online-memory-rates by layer. Other layers have the rate of `fastweights train online-memory`."""


def trial(model: str, column: str, preset: str) -> Trial:
    """The settings of `fastweights train online-memory` with another layer and delay."""
    rate = {"learning_rate": RATES[model]} if model in RATES else {}
    return OnlineMemoryRecipe(
        **{**OnlineMemoryRecipe.PRESETS[preset], "layer": model, "delay": int(column), **rate}
    ).trial()


EXPERIMENT = Experiment(
    title="Online memory: recall of earlier passages of a text that is read once",
    source="Our own check, after Gregor 2020, Sec. 5",
    display=Display("bits per past symbol, in one pass over the text"),
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
        "At the start of a snippet the memory keeps its state. The other states are 0: the last output of a layer, the "
        "inputs of a convolution, the hidden state of an LSTM. The cells of an LSTM are its memory and are kept.",
        "All layers have the settings of `fastweights train online-memory`; rates are those of online-memory-rates, "
        "found at delay 10.",
        "In the training text the state is carried from segment to segment. On other texts a layer starts from its "
        "initial state, with the weights that are best on validation data.",
        "There is only the layer between the embeddings and the output. A layer whose output depends on its memory "
        "alone cannot name anything that is not in its memory.",
    ),
    details={Detail("final", delay): f"end of the training text, {label}" for delay, label in DELAYS.items()},
    sanity="This comparison is ours, without numbers of a paper.",
)
