"""What the step of a cell is now: backends that compile it ask once a call."""

from collections.abc import Sequence

from torch import Tensor

from fastweights.call.call import Problem
from fastweights.compiler.specialise.specialisations import Form, forms


def form_of(problem: Problem) -> tuple[Form, Sequence[Tensor]]:
    """What the step is now; asked once a call."""
    first = problem.inputs[0]
    if "form" not in problem.found:
        if "forms" not in problem.known:
            problem.known["forms"] = forms(problem.cell, problem.sizes, first.dtype, first.device.type)
        problem.found["form"] = problem.known["forms"].now()
    found: tuple[Form, Sequence[Tensor]] = problem.found["form"]
    return found
