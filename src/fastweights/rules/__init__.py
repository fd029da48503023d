"""Update rules (elementary programming instructions), one per file: one head, one step, W -> W."""

from fastweights.rules.delta import delta
from fastweights.rules.efla import efla
from fastweights.rules.gated import gated
from fastweights.rules.gated_delta import gated_delta
from fastweights.rules.gated_oja import gated_oja
from fastweights.rules.gdn2 import gdn2
from fastweights.rules.gla import gla
from fastweights.rules.hebbian import hebbian
from fastweights.rules.kda import kda
from fastweights.rules.longhorn import longhorn
from fastweights.rules.nlms import nlms
from fastweights.rules.outer_product import outer_product
from fastweights.rules.sum import sum
from fastweights.step_docstrings import describe_parameters

__all__ = [
    "delta",
    "efla",
    "gated",
    "gated_delta",
    "gated_oja",
    "gdn2",
    "gla",
    "hebbian",
    "kda",
    "longhorn",
    "nlms",
    "outer_product",
    "sum",
]

describe_parameters(globals()[name] for name in __all__)
