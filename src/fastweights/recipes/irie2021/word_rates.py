"""The learning rate of every word model of Table 1 with truncated context, chosen on validation data."""

from fastweights.core.metric import Display
from fastweights.recipes._rates import rate_search
from fastweights.recipes.irie2021.table_1 import MODELS, PAPERS, truncated

EXPERIMENT = rate_search(
    "Learning rates for word-level language models",
    "irie2021/table-1",
    Display("validation perplexity", data="validation"),
    {model: MODELS[model] for model in PAPERS},
    truncated,
    rates=("0.001", "0.002", "0.004", "0.008"),
    seeds=2,
)
