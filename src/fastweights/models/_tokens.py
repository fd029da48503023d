"""Checks of tokens and targets."""

from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from fastweights.core.autocast import at_least_float32
from fastweights.core.errors import invalid, require
from fastweights.core.padding import INTEGERS, can_be_read, remedy_for


def check_tokens(tokens: Any, name: str = "tokens") -> None:
    """Raises unless tokens are int `[B, T]` with at least one step."""
    require(isinstance(tokens, Tensor), name, "a tensor", type(tokens).__name__, remedy_for(tokens, name))
    require(tokens.dtype in INTEGERS, name, "int64 or int32", tokens.dtype, f"Try {name}.long().")
    if tokens.ndim != 2 or tokens.shape[1] == 0:
        raise invalid(name, "[B, T] with T of at least 1", list(tokens.shape), "Give batch and time an axis each.")


def check_known(tokens: Tensor, vocab_size: int, name: str = "tokens") -> None:
    """Raises unless every token is below `vocab_size`. Values on other devices are not checked."""
    if not can_be_read(tokens) or not tokens.numel():
        return
    least, most = (int(token) for token in tokens.aminmax())
    require(least >= 0 and most < vocab_size, name, f"from 0 to {vocab_size - 1}", f"{least} to {most}")


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p(target) in nats, logits `[..., N]` and targets int `[...]` -> `[...]` in float32 or float64.

    Under autocast logits have half precision, but a loss in half precision would have an error of up to 0.4 %.
    """
    check_known(targets, logits.shape[-1], "targets")
    losses = cross_entropy(at_least_float32(logits).flatten(0, -2), targets.flatten().long(), reduction="none")
    return losses.view(targets.shape)


def check_targets(targets: Any, tokens: Tensor) -> None:
    """Raises unless targets are int `[B, T]` like the tokens."""
    check_tokens(targets, "targets")
    if targets.shape != tokens.shape:
        raise invalid("targets", f"[B, T] = {list(tokens.shape)} like tokens", list(targets.shape))
