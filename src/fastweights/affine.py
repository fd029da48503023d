"""The affine form of a memory: what lets `scan` compute chunks of time as matrix products.

The rule or cell stays the definition. Its affine form is declared beside it with `@affine`, and
`fastweights.testing` holds the two to each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from torch import Tensor


class Affine(NamedTuple):
    """The scalars of a rule that is affine in W: W <- W (decay I - erase k k^T) + write v k^T.

    A float says that the scalar is the same for every input; 1.0 and 0.0 spare work.
    """

    decay: Tensor | float
    erase: Tensor | float
    write: Tensor | float


class Program(NamedTuple):
    """A whole sequence of affine steps, read as `W q` after every write.

        W[t] = W[t-1] (decay[t] I - erase[t] k[t] k[t]^T) + write[t] v[t] k[t]^T

    q, k `[B, T, H, K]`; v `[B, T, H, V]`; the scalars `[B, T, H]` or float.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scalars: Affine


@dataclass(frozen=True)
class AffineForm:
    """How a cell becomes a `Program` and back.

    `program` takes the inputs `[B, T, H, ...]`; `pack` turns the state into one matrix `[B, H, V, K]` and `unpack`
    turns it back; `read` turns `W q` into the cell's output.
    """

    program: Callable[[Any], Program]
    pack: Callable[[Any], Tensor]
    unpack: Callable[[Tensor], Any]
    read: Callable[[Tensor], Tensor]


Step = TypeVar("Step", bound=Callable[..., Any])


def affine(form: AffineForm | Callable[..., Affine]) -> Callable[[Step], Step]:
    """Declares the affine form of a cell or, for a rule, its scalars as a function of its rates and decays by name."""

    def declare(step: Step) -> Step:
        step.affine = form  # type: ignore[attr-defined]
        return step

    return declare
