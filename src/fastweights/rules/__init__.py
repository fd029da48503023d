"""Elementary programming instructions: one file a rule, one head, one step, W -> W."""

from fastweights.rules.delta import delta
from fastweights.rules.gated import gated
from fastweights.rules.gated_delta import gated_delta
from fastweights.rules.hebbian import hebbian
from fastweights.rules.outer_product import outer_product
from fastweights.rules.sum import sum

__all__ = [
    "delta",
    "gated",
    "gated_delta",
    "hebbian",
    "outer_product",
    "sum",
]
