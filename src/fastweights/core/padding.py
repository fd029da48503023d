"""Variable-length sequences in one batch: member b has `lengths[b]` steps, and the rest is padding."""

import torch
from torch import Tensor

from fastweights.core.errors import invalid

INTEGERS = (torch.int64, torch.int32)


def check_lengths(lengths: Tensor | None, B: int, device: torch.device) -> None:
    """Raises unless `lengths` is None or int `[B]` on the device of the inputs."""
    if lengths is None:
        return
    if not isinstance(lengths, Tensor):
        raise invalid("lengths", "a tensor", type(lengths).__name__, remedy_for(lengths, "lengths"))
    remedy = "Try mask.sum(1), if it is the mask of sequences that are padded at their end."
    if lengths.dtype not in INTEGERS:
        raise invalid("lengths", "int64 or int32", lengths.dtype, remedy)
    if lengths.ndim != 1 or lengths.shape[0] != B:
        # The message is not built before it is needed: a program that is exported would be pinned to the B in it.
        raise invalid("lengths", f"[B] with B={B}", list(lengths.shape), remedy)
    if lengths.device != device:
        raise invalid("lengths", f"on {device} like the inputs", lengths.device)


def remedy_for(value: object, name: str) -> str:
    """A remedy for a value that is given in place of a tensor."""
    if hasattr(value, "batch_sizes"):
        return f"Pass x, lengths = torch.nn.utils.rnn.pad_packed_sequence({name}, batch_first=True)."
    return f"Try torch.tensor({name})."


def check_ends(lengths: Tensor | None, T: int) -> None:
    """Raises unless every length is from 0 to T. Values that only a synchronisation would reveal are not checked."""
    if lengths is None or not can_be_read(lengths):
        return
    least, most = (int(end) for end in lengths.aminmax())
    if least < 0 or most > T:
        raise invalid("lengths", f"from 0 to T={T}", f"{least} to {most}")


def can_be_read(x: Tensor) -> bool:
    """Whether the values of a tensor can be read without a synchronisation."""
    transformed = torch._C._are_functorch_transforms_active()
    return not (torch.compiler.is_compiling() or transformed) and type(x) is Tensor and x.device.type == "cpu"


def valid_steps(lengths: Tensor, T: int) -> Tensor:
    """Marks the steps of the sequence, as opposed to its padding, bool `[B, T]`."""
    return torch.arange(T, device=lengths.device) < lengths.unsqueeze(1)


def mask_steps(valid: Tensor, x: Tensor, fill: float = 0.0) -> Tensor:
    """x `[B, T, ...]` where `valid`, bool `[B, T]`, else `fill`. A NaN in the padding gets no gradient either."""
    return torch.where(valid.view(*valid.shape, *[1] * (x.ndim - 2)), x, fill)


def at_end(x: Tensor, lengths: Tensor) -> Tensor:
    """`x[b, lengths[b]]` for every member, `[B, ...]`."""
    return x[torch.arange(x.shape[0], device=x.device), lengths]
