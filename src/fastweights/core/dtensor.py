"""Tensors of which every process has a part, and what a checkpoint holds: all of them."""

from typing import Any

from torch import Tensor


def whole(tensor: Any) -> Tensor:
    """The tensor that processes have parts of; they all ask for it at once."""
    found: Tensor = tensor.full_tensor() if _is_part(tensor) else tensor
    return found


def cut_like(tensor: Tensor, like: Any) -> Tensor:
    """This process's part of a whole tensor, if `like` is one of such parts and of its shape."""
    if not _is_part(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Everybody has the whole: nobody need send any.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _is_part(tensor: Tensor) -> bool:
    """Whether it is a `DTensor`, whose module takes seconds to import: nobody who reads a checkpoint needs it."""
    return hasattr(tensor, "device_mesh")
