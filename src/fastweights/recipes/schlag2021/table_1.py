"""Translation: softmax attention, and linear attention with feature maps of growing size."""

from typing import Any

from fastweights.core.metric import Display
from fastweights.experiments.claim import Above, Claim, above, places
from fastweights.experiments.experiment import Experiment, Preset, Trial, table
from fastweights.recipes.multi30k import MEASURED, Multi30kRecipe
from fastweights.training.settings.translation import Translation

MODELS = {"softmax": "Transformer", "linear": "Linear Transformer", "performer": "Performer", "dpfp": "DPFP"}
HEAD = 64
COLUMNS = {"64": "keys of 64", "256": "keys of 256", "512": "keys of 512"}
"""Labels by size of a key after the feature map."""

SIZES: dict[str, Any] = {"d_model": 1024, "num_layers": 6, "num_heads": 16, "d_ff": 4096, "dropout": 0.3}
TRAINING = Translation(
    steps=35_000, batch_size=3 * 16 * 3584, learning_rate=5e-4, warmup_steps=4000, evaluate_every=780
)


def feature_map(model: str, size: str) -> str:
    """The feature map from heads of 64 to keys of a size."""
    keys = int(size)
    return {"linear": "elu", "performer": f"scaled-favor-{keys // 2}", "dpfp": f"dpfp-{keys // (2 * HEAD)}"}[model]


def trial(model: str, column: str, preset: str) -> Trial:
    """A translator with softmax attention, or with linear attention of one feature map, everywhere.

    The reduced presets have the settings of `fastweights train multi30k`.
    """
    phi = None if model == "softmax" else feature_map(model, column)
    layer = "linear-attention" if phi else "softmax-attention"
    attention: dict[str, Any] = {
        "layer": layer,
        "feature_map": phi,
        "encoder_feature_map": phi,
        "cross_feature_map": phi,
    }
    if preset != "paper":
        return Multi30kRecipe(**{**Multi30kRecipe.PRESETS[preset], **attention}).trial()
    captions = Multi30kRecipe(**attention, **SIZES).trial()
    return captions._replace(task="wmt14", task_options={}, training=TRAINING)


ONLY = {"softmax": ("64",), "linear": ("64",), "dpfp": ("256", "512")}
"""Sizes of keys that a model has: softmax attention and ELU + 1 keep that of a head, DPFP at least doubles it."""


def _preset(*columns: str, seeds: int = 1) -> Preset:
    absent = frozenset((m, c) for m in MODELS for c in columns if c not in ONLY.get(m, columns))
    return Preset(columns, tuple(MODELS), seeds, absent)


EXPERIMENT = Experiment(
    title="Translation from English to German",
    source="Schlag, Irie and Schmidhuber 2021, Sec. 6.2, Table 1",
    display=Display("test BLEU"),
    models=MODELS,
    columns=COLUMNS,
    published=table(
        tuple(COLUMNS),
        {
            "softmax": (27.7, None, None),
            "linear": (26.8, None, None),
            "performer": (24.4, 25.3, 27.7),
            "dpfp": (None, 26.9, 27.1),
        },
    ),
    presets={
        "smoke": _preset("64", "256"),
        "cpu": _preset("64", "256", seeds=3),
        "paper": _preset(*COLUMNS),
    },
    trial=trial,
    claims=(
        Claim(
            "The Performer is as good as the basic Transformer when the number of samples is large enough: within one "
            "BLEU for keys of 512.",
            "Sec. 6.2",
            (Above(("performer", "512"), ("softmax", "64"), by=-1.0),),
        ),
        Claim("DPFP outperforms the Linear Transformer.", "Sec. 6.2", above(("dpfp", "256"), ("linear", "64"))),
        Claim(
            "DPFP outperforms the Performer when keys are relatively small.",
            "Sec. 6.2",
            above(*places("256", "dpfp", "performer")),
        ),
        Claim(
            "The basic Transformer is ahead of the Linear Transformer.",
            "Table 1",
            above(*places("64", "softmax", "linear")),
        ),
        Claim(
            "With keys of 64 the Performer is behind the Linear Transformer.",
            "Table 1",
            above(*places("64", "linear", "performer")),
        ),
    ),
    notes=(
        "The paper translates WMT14 with a big Transformer on three GPUs. Preset cpu translates captions (Multi30k) "
        "with a small one whose heads have the same size, 64. Its numbers only compare models with each other.",
        "The paper does not state which attentions are linear. Here all are: in the encoder, in the decoder and "
        "between them.",
        "The paper does not state the learning rate, the number of beams and the length penalty either: 5e-4 is the "
        "rate of the recipe that it adapts; 5 beams and a penalty of 1 are our choice. FAIRSEQ evaluates with 4 beams "
        "and a penalty of 0.6.",
        "The best weights are those with the best BLEU of greedy decoding.",
        "A batch of preset paper, 172,032 tokens, does not fit one device: add --gradient-accumulation-steps 48.",
        "Softmax and ELU + 1 always have keys of 64.",
        MEASURED,
        "FAVOR+ approximates the kernel of softmax attention here, with scores divided by the square root of 64. "
        "Without this factor, the features of heads of 64 nearly vanish, and the decoder reads nothing of the source. "
        "According to appendix F of the paper, its word models have the same random features as its translators. Those "
        "have no such factor in the authors' code. So the paper's random features most probably differ from ours.",
        "Captions of a dozen words stay below the capacity of every feature map, which is the subject of the paper's "
        "table.",
    ),
    sanity="No translator learns enough in minutes. The experiment multi30k-rates is the search for the rate.",
)
