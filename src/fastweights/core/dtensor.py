"""Sharded tensors: the whole tensor that a checkpoint holds, and the shard of this process."""

from typing import Any

from torch import Tensor


def whole(tensor: Any) -> Tensor:
    """The whole of a tensor that may be sharded. All processes must call this together."""
    full: Tensor = tensor.full_tensor() if _is_sharded(tensor) else tensor
    return full


def cut_like(tensor: Tensor, like: Any) -> Tensor:
    """This process's shard of a whole tensor if `like` is sharded and of the same shape, otherwise the tensor."""
    if not _is_sharded(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every process has the whole tensor, so none is sent.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _is_sharded(tensor: Tensor) -> bool:
    """Whether it is a `DTensor`. The module of that class takes seconds to import, so it is not asked."""
    return hasattr(tensor, "device_mesh")
