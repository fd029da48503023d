"""Tensor files: one safetensors file of tensors and JSON facts. Nothing that is read from disk is unpickled."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fastweights.core.errors import InputError, require
from fastweights.core.files import read_json, require_regular, write_atomically
from fastweights.core.sealed_json import seal, unseal

ENTRY = "fastweights"
"""Key of the metadata of a safetensors file under which the facts are stored."""

LONGEST_ENTRY = 1 << 20


class TensorFile(NamedTuple):
    """Tensors by name, and JSON facts."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def write_tensor_file(path: Path, checkpoint: TensorFile) -> None:
    """Writes a checkpoint atomically, with a digest of its content. Equal content gives equal bytes."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    # One entry: safetensors writes several in an order that changes from process to process.
    metadata = {ENTRY: json.dumps(seal({"facts": checkpoint.facts}, _digest(tensors)))}
    write_atomically(path, save(tensors, metadata))


def read_tensor_file(path: Path, kind: str = "checkpoint") -> TensorFile:
    """Reads a checkpoint, or another `kind` of file that is like one; `InputError` if it is missing, truncated, changed
    or not one of ours."""
    requirement, other = f"a {kind} written by fastweights", f"{path}, which is damaged or another kind of file"
    require_regular(path, kind)
    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {}).get(ENTRY, "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except OSError as error:
        raise InputError(f"{kind} must be a readable file, got {path}: {error.strerror or error}.") from None
    except UnicodeEncodeError:
        raise InputError(f"{kind} must be a file in a folder with a UTF-8 name, got {path}. Rename it.") from None
    except (SafetensorError, KeyError, ValueError):
        raise InputError(f"{kind} must be {requirement}, got {other}.") from None
    require(0 < len(entry) < LONGEST_ENTRY, kind, requirement, f"{path} with {len(entry):,} bytes of facts")
    content = unseal(read_json(entry, kind, path), _digest(tensors), kind, path)
    require(isinstance(content.get("facts"), dict), kind, requirement, f"{path} without facts")
    return TensorFile(tensors, content["facts"])


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
