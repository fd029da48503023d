"""Sequential adaptation: accuracy on the k-th image of a class, before and after a change of the data set."""

from typing import Any

from fastweights.core.measurements import Detail
from fastweights.core.metric import Display
from fastweights.experiments.claim import Claim, above, places
from fastweights.experiments.experiment import CurveFigure, Experiment, Preset, Published, Sanity, Trial
from fastweights.recipes.irie2022._networks import FEW_PHOTOGRAPHS, SMALLER_BLOCKS, VISION, network
from fastweights.recipes.irie2022._networks import MODELS as ALL
from fastweights.training.settings.supervised import Supervised

MODELS = {model: ALL[model] for model in ("delta-net", "srwm", "fake-srwm")}
COLUMNS = {"both": "Omniglot and Mini-ImageNet"}
INSTANCES = (1, 2, 3, 5, 10)
LABELS = {"omniglot": "Omniglot", "mini_imagenet": "Mini-ImageNet"}
ORDERS = (("omniglot", "mini_imagenet"), ("mini_imagenet", "omniglot"))


def detail(first: str, part: str, k: int = 0) -> Detail:
    """Key of the accuracy on the k-th image of a class.

    Args:
        first: Data set of the first part of the sequence.
        part: Data set of the image.
        k: Number of the image; 0 for all images.
    """
    return Detail(f"{first}_first_{part}", str(k) if k else "all")


DETAILS = {
    detail(order[0], part, k): (f"{LABELS[part]}, {place}: {f'image {k} of a class' if k else 'all'}")
    for order in ORDERS
    for part, place in zip(order, ("first", "second"), strict=True)
    for k in (*INSTANCES, 0)
}
"""Labels by data set of the first part, data set of the image, and number of the image."""

PRINTED = {
    ("delta-net", "omniglot"): (38.9, 90.9, 94.1, 95.9, 96.8, 92.2),
    ("srwm", "omniglot"): (41.5, 92.0, 95.1, 96.5, 96.4, 92.4),
    ("delta-net", "mini_imagenet"): (20.9, 42.9, 49.3, 52.5, 54.6, 50.9),
    ("srwm", "mini_imagenet"): (20.5, 45.9, 51.5, 56.3, 59.9, 54.5),
}
CURVE_FIGURES = {
    f"{order[0]}_first": CurveFigure(f"{LABELS[order[0]]}, then {LABELS[order[1]]}", "images so far", 0.5)
    for order in ORDERS
}
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"shots": 2, "trim": 3, "side": 16, "validation_size": 4, "test_size": 4},
    "cpu": {"shots": 10, "trim": 40, "side": 16, "validation_size": 200, "test_size": 1000},
    "paper": {"validation_size": 800, "test_size": 1600},
}
BLOCKS: dict[str, dict[str, Any]] = {
    **SMALLER_BLOCKS,
    "paper": {"d_model": 256, "num_layers": 3, "num_heads": 16, "d_ff": 256},
}
TRAINING: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 2, "batch_size": 4, "evaluate_every": 2, "learning_rate": 1e-3},
    "cpu": {
        **{"steps": 24_000, "batch_size": 16, "decay": 8000, "evaluate_every": 500, "learning_rate": 3e-3},
        "precision": "bf16-mixed",
    },
    "paper": {
        **{"steps": 1_000_000, "batch_size": 32, "gradient_accumulation_steps": 2, "evaluate_every": 4000},
        **{"learning_rate": 3e-4},
    },
}


def trial(model: str, column: str, preset: str) -> Trial:
    """Conv-4 with 32 channels, followed by two or three blocks."""
    width = 8 if preset == "smoke" else 32
    options = network(model, 0, BLOCKS[preset], {}, width, VISION[preset])
    task_options = {} if preset == "paper" else {"unlabelled": "corrected", **FEW_PHOTOGRAPHS}
    training = Supervised(betas=(0.9, 0.995), epsilon=1e-9, **TRAINING[preset])
    return Trial("sequential-adaptation", {**SIZES[preset], **task_options}, "few-shot-network", options, training)


def _published() -> dict[tuple[str, Any], Published]:
    return {
        (model, detail("omniglot", part, k)): Published(number)
        for (model, part), numbers in PRINTED.items()
        for k, number in zip((*INSTANCES, 0), numbers, strict=True)
    }


EXPERIMENT = Experiment(
    title="Adaptation to new classes, and then to another data set",
    source="Irie, Schlag, Csordas and Schmidhuber 2022, Sec. 4.2, Table 2",
    display=Display("test accuracy, %", "percent"),
    models=MODELS,
    columns=COLUMNS,
    published={},
    presets={
        "smoke": Preset(("both",), ("delta-net", "srwm")),
        "cpu": Preset(("both",), ("delta-net", "srwm")),
        "paper": Preset(("both",), ("delta-net", "srwm"), seeds=3),
    },
    trial=trial,
    claims=(
        Claim(
            "The performance of DeltaNet and SRWM is similar on the first part of the test sequence: within two "
            "points.",
            "Sec. 4.2",
            (
                *above(*places(detail("omniglot", "omniglot"), "srwm", "delta-net"), by=-2.0),
                *above(*places(detail("omniglot", "omniglot"), "delta-net", "srwm"), by=-2.0),
            ),
        ),
        Claim(
            "The SRWM achieves a higher accuracy on the second part sampled from Mini-ImageNet.",
            "Sec. 4.2",
            above(*places(detail("omniglot", "mini_imagenet"), "srwm", "delta-net")),
        ),
        Claim(
            "The SRWM recovers after the change: its accuracy above chance on the tenth photograph of a class is at "
            "least half of that with photographs in the first part.",
            "",
            above(
                ("srwm", detail("omniglot", "mini_imagenet", 10)),
                ("srwm", detail("mini_imagenet", "mini_imagenet", 10)),
                times=0.5,
                by=10.0,
            ),
        ),
    ),
    notes=(
        "The table has the mean over both parts in both orders. The paper's numbers, with Omniglot first, are under In "
        "detail.",
        "Mini-ImageNet has 600 images per class. The committed runs have the first 100 of each. Preset cpu augments "
        "the training data: training classes rotated by quarters are additional classes, as in the paper for Omniglot, "
        "and shifts move images by up to 3 pixels.",
        "Preset cpu has images of 16 x 16 pixels, 10 images of a class in each part, a separate code for no label, and "
        "smaller memories. The authors' code adds up the gradients of the two halves of a batch; ours uses their mean. "
        "There each half has its own order and lengths of data sets, here both halves have the same.",
        "In preset cpu the vision encoder has an additional loss, that of a prototypical network (Snell et al. 2017), "
        "and its features are normalised per channel before the memory. The paper has neither, and up to a million "
        "training steps of 32 sequences.",
    ),
    details=DETAILS,
    published_details=_published(),
    curve_figures=CURVE_FIGURES,
    sanity=Sanity(
        columns=("both",),
        bound=30.0,
        task={"shots": 3, "trim": 3, "validation_size": 50, "test_size": 200},
        training={"steps": 400, "decay": 100, "evaluate_every": 100},
        sizes={"head": 16},
    ),
)
