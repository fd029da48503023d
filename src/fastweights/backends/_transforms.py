"""Derivatives that a backend with a backward pass of its own does not support."""

import torch


def unsupported_transform() -> str:
    """The active transform that needs more than a first derivative in reverse mode; empty if there is none."""
    if torch._C._are_functorch_transforms_active():
        return "it has a plain backward pass, and torch.func (grad, vmap, jvp, ...) wants more"
    if not torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0:
        return "it has a backward pass only, and derivatives forward are wanted"
    return ""
