"""Key-value retrieval, setting 1: capacity of a memory by feature map."""

from typing import Any

from fastweights.experiments.claim import Above, Claim, above, below
from fastweights.experiments.experiment import Experiment, Preset, Trial
from fastweights.recipes.schlag2021._retrieval import DISPLAY, NOTES, SOLVED, columns, few_keys, published
from fastweights.recipes.schlag2021._retrieval import trial as retrieval

MODELS = {
    "softmax": "Softmax",
    "linear": "Linear (ELU + 1)",
    "dpfp-1": "DPFP-1",
    "dpfp-2": "DPFP-2",
    "dpfp-3": "DPFP-3",
    "favor-64": "FAVOR+ 64",
    "favor-128": "FAVOR+ 128",
    "favor-512": "FAVOR+ 512",
}
COLUMNS = columns(600)

LAST = {"softmax": 340, "linear": 40, "dpfp-1": 100, "dpfp-2": 240, "dpfp-3": 340}
LEARNT = {model: range(20, last + 1, 20) for model, last in LAST.items()}
"""Sizes for which the authors' logs only show that the loss reached 1e-3."""

LOSSES: dict[str, dict[int, float]] = {
    "softmax": {360: 0.0045, 460: 0.0089, 500: 0.0089, 540: 0.016, 560: 0.030, 600: 0.030},
    "linear": {
        **{60: 0.025, 80: 0.108, 100: 0.164, 120: 0.232, 200: 0.342},
        **{300: 0.397, 400: 0.422, 500: 0.429, 600: 0.451},
    },
    "dpfp-1": {
        **{120: 0.0083, 140: 0.051, 160: 0.102, 200: 0.173},
        **{300: 0.286, 400: 0.342, 500: 0.386, 600: 0.411},
    },
    "dpfp-2": {260: 0.0084, 280: 0.045, 300: 0.068, 400: 0.164, 500: 0.276, 600: 0.323},
    "dpfp-3": {360: 0.0034, 400: 0.036, 500: 0.169, 600: 0.198},
    "favor-64": {20: 0.117, 40: 0.274, 60: 0.483},
    "favor-128": {20: 0.074, 40: 0.175, 60: 0.484},
    "favor-512": {20: 0.024, 40: 0.075, 60: 0.407},
}

RANDOM = {"favor-64": 0.1, "favor-128": 0.1, "favor-512": 0.1}
"""Bounds of the sanity check for random directions, whose dot products are never exact."""


def trial(model: str, column: str, preset: str) -> Trial:
    """Softmax attention, or linear attention with a feature map, both normalised by the sum of their weights."""
    feature_map = "elu" if model == "linear" else model
    memory: dict[str, Any] = {"memory": "linear-attention", "feature_map": feature_map}
    return retrieval("capacity", {"memory": "softmax-attention"} if model == "softmax" else memory, column, preset)


LARGEST = {"softmax": 400, "dpfp-3": 400, "dpfp-2": 300, "dpfp-1": 200, "linear": 140}
"""Largest number of keys in preset cpu, well above the capacity of the feature map; 60 for all FAVOR+."""

COLUMNS_OF_CPU = ("20", "40", "60", "80", "100", "120", "140", "160", "200", "240", "300", "400")


def _too_many(columns: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    return frozenset((m, c) for m in MODELS for c in columns if int(c) > LARGEST.get(m, 60))


BEYOND = {"linear": "100", "dpfp-1": "160", "dpfp-2": "300", "dpfp-3": "400", "favor-512": "60"}
"""Numbers of keys above the capacity of a feature map."""


def _limit(model: str, learns: str, fails: str) -> tuple[Above, ...]:
    return *below((model, learns), SOLVED), *above((model, fails), SOLVED)


EXPERIMENT = Experiment(
    title="Retrieval of S associations with keys of 64: capacity",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.1.1, Figure 2",
    display=DISPLAY,
    models=MODELS,
    columns=COLUMNS,
    published=published(LEARNT, LOSSES),
    presets={
        "smoke": Preset(("20",), tuple(MODELS)),
        "cpu": Preset(COLUMNS_OF_CPU, tuple(MODELS), seeds=3, skip=_too_many(COLUMNS_OF_CPU)),
        "paper": Preset(tuple(COLUMNS), tuple(MODELS)),
    },
    trial=trial,
    claims=(
        Claim(
            "Linear attention begins to accumulate errors with 60 or more associations.",
            "Sec. 6.1.1",
            _limit("linear", "40", "60"),
        ),
        Claim(
            "DPFP projections 1, 2 and 3 start to accumulate errors as they approach their respective limits at 128, "
            "256, and 384.",
            "Sec. 6.1.1",
            (*_limit("dpfp-1", "100", "140"), *_limit("dpfp-2", "200", "300"), *_limit("dpfp-3", "300", "400")),
        ),
        Claim(
            "FAVOR+ fails to achieve a loss of 0 in any experiment.",
            "Sec. 6.1.1",
            tuple(
                part for m in (64, 128, 512) for n in ("20", "40", "60") for part in above((f"favor-{m}", n), SOLVED)
            ),
        ),
        Claim(
            "Softmax attention outperforms all feature maps.",
            "Sec. 6.1.1",
            tuple(Above((model, n), ("softmax", n)) for model, n in BEYOND.items()),
        ),
        Claim(
            "Softmax attention struggles to fully converge with more than 500 keys.",
            "Sec. 6.1.1",
            (*below(("softmax", "300"), SOLVED), *above(("softmax", "540"), SOLVED)),
        ),
    ),
    notes=(*NOTES, "Preset cpu leaves out models that already fail with fewer keys."),
    axis="S, number of keys",
    sanity=few_keys("20", RANDOM),
)
