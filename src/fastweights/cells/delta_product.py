"""DeltaProduct: several delta steps on one token."""

from typing import Annotated, Any, NamedTuple

from torch import Tensor

from fastweights.core.arguments import Size, checked
from fastweights.core.family import family
from fastweights.rules.delta import delta
from fastweights.signature import Decay, Key, Matrix, TensorSpec, Value, key_features


class DeltaProductState(NamedTuple):
    W: Matrix


@family
@checked
def make_delta_product(steps: Size = 2) -> Any:
    """The step with `steps` writes per token.

    Raises:
        InputError: `steps` is less than 1.
    """
    fields = {
        "k": TensorSpec(f"{steps} K", "key"),
        "v": TensorSpec(f"{steps} V", "value"),
        "beta": TensorSpec(f"{steps}", "rate"),
    }
    writes = [(name, Annotated[Tensor, slot]) for name, slot in fields.items()]
    Inputs = NamedTuple("Inputs", [("q", Key), *writes, ("decay", Decay)])  # type: ignore[misc]

    @key_features("identity", "l2")
    def delta_product(state: DeltaProductState, x: Any) -> tuple[DeltaProductState, Value]:
        """DeltaProduct: several delta-rule writes per token.

            W <- decay W
            W <- W + beta_i (v_i - W k_i) k_i^T, i = 1, ..., n
            y = W q

        The state is multiplied by a product of n Householder matrices. With rates up to 2 (`twice-sigmoid`) and n = 2
        the product can be any rotation in a plane; one delta step can only reflect. A decay of 1 gives the form without
        decay.

        Source: Siems et al. 2025 (DeltaProduct, arXiv:2502.10297), in the form of flash-linear-attention,
        `ops/gated_delta_product/naive.py`.

        Can: overwrite, fade.
        """
        W = x.decay * state.W
        for k, v, beta in zip(x.k, x.v, x.beta, strict=True):
            W = delta(W, k, v, beta)
        return DeltaProductState(W), W @ x.q

    delta_product.__annotations__["x"] = Inputs
    return delta_product


delta_product = make_delta_product()
