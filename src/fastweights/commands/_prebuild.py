"""Kernels built ahead of time, on the machine or in the image where they will run."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fastweights.backends.compiled import build_all
from fastweights.call.scan_call import ScanCall
from fastweights.cell import Cell, examples
from fastweights.compiler.targets.cache import kernel_cache_folder
from fastweights.core.errors import InputError, require
from fastweights.dispatch import WATCHERS, scan
from fastweights.layers import make_layer


def prebuild_cell(cell: Cell, sizes: Mapping[str, int], dtype: torch.dtype) -> list[str]:
    """Builds the kernels with which `scan` runs a cell, with a size for every axis; returns their descriptions.

    Raises:
        InputError: the cell does not compile, there is no compiler, or the cache cannot be written.
    """
    state, inputs, *params = examples(cell, sizes, dtype)
    inputs = cell.Inputs(*(x[None, None, None].repeat(1, 2, 1, *(1 for _ in x.shape)) for x in inputs))
    state = cell.State(*(x[None, None] for x in state))
    slow = cell.Params(*(x[None] for x in params[0])) if cell.Params else None
    return _prebuild(lambda: scan(cell, inputs, state, slow))


def prebuild_layer(name: str, d_model: int, num_heads: int, dtype: torch.dtype) -> list[str]:
    """Builds the kernels with which `make_layer(name, d_model, heads)` trains and streams; returns their descriptions.

    Raises:
        InputError: the layer has no kernels or is invalid, there is no compiler, or the cache cannot be written.
    """
    layer = make_layer(name, d_model, num_heads).to(dtype)
    done = _prebuild(lambda: layer(torch.zeros(1, 2, d_model, dtype=dtype)))
    require(bool(done), "layer", "a layer with kernels", name, "It runs on operations of PyTorch, which need no build.")
    return done


def _prebuild(run: Callable[[], Any]) -> list[str]:
    folder = kernel_cache_folder()
    remedy = "Set $FASTWEIGHTS_CACHE to a private folder that you can write to."
    usable = folder is not None and os.access(folder, os.W_OK)
    require(usable, "cache", "a folder in which kernels can be stored", folder, remedy)
    built: dict[str, None] = {}

    def note(call: ScanCall) -> None:
        built[_built(call)] = None

    WATCHERS.append(note)
    try:
        with torch.no_grad():
            run()
    finally:
        WATCHERS.remove(note)
    return list(built)


def _built(call: ScanCall) -> str:
    reason = build_all(call)
    if reason:
        raise InputError(f"cell must be a cell that compiles here, got {call.cell.name}: {reason.rstrip('.')}.")
    sizes = " ".join(f"{axis}={size}" for axis, size in sorted(call.plan.sizes.items()))
    return f"{call.cell.name}, {sizes}, {str(call.plan.dtype).removeprefix('torch.')}"
