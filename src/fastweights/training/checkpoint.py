"""Checkpoints: one safetensors file of tensors and JSON facts. Nothing that is read from disk is unpickled."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.errors import InputError, require
from fastweights.training.files import write_atomically


class Checkpoint(NamedTuple):
    """Tensors by name, and JSON facts."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically, with a digest of its tensors."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    metadata = {"facts": json.dumps(checkpoint.facts), "sha256": _digest(tensors)}
    write_atomically(path, save(tensors, metadata))


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint; `InputError` if it is missing, truncated, changed or not one of ours."""
    requirement = "a checkpoint written by fastweights"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        facts = json.loads(metadata["facts"])
    except OSError as error:
        raise InputError(f"checkpoint must be a readable file, got {path}: {error.strerror or error}.") from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"checkpoint must be {requirement}, got {path}: {error}.") from None
    intact = metadata.get("sha256") == _digest(tensors)
    require(intact and isinstance(facts, dict), "checkpoint", requirement, f"{path} with changed content")
    return Checkpoint(tensors, facts)


def pack(model: nn.Module, optimiser: torch.optim.Optimizer, state: Any) -> dict[str, Tensor]:
    """All tensors that a run needs to go on as if it had never stopped, by name."""
    moments = optimiser.state_dict()["state"]
    return {
        **{f"model.{name}": tensor for name, tensor in model.state_dict().items()},
        **{f"optimiser.{n}.{key}": tensor for n, values in moments.items() for key, tensor in values.items()},
        **{f"state.{n}": leaf for n, leaf in enumerate(tree_flatten(state)[0])},
        "random.cpu": torch.get_rng_state(),
        **({"random.cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}),
    }


def unpack(tensors: dict[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer, like: Any) -> Any:
    """Puts packed tensors back where they came from; returns the carried state, in the structure of `like`."""
    load_model(tensors, model)
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, number, key = name.split(".")
            moments.setdefault(int(number), {})[key] = tensor
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    leaves, structure = tree_flatten(like)
    return tree_unflatten([tensors[f"state.{n}"].to(leaf.device) for n, leaf in enumerate(leaves)], structure)


def load_model(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Loads the tensors named `model.*`; `InputError` if they belong to another model."""
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"checkpoint must be of the model in config.json, got another one: {reason}") from None


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
