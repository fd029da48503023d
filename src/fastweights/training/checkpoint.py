"""Checkpoints: one safetensors file of tensors and JSON facts. Nothing that is read from disk is unpickled."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.core.errors import InputError, require
from fastweights.core.files import read_json, require_regular, write_atomically
from fastweights.core.sealed_json import seal, unseal
from fastweights.training.parts import cut_like
from fastweights.training.run import CONFIG

T = TypeVar("T")

ENTRY = "fastweights"
"""Where a safetensors file says what else is in it."""

LONGEST_ENTRY = 1 << 20


class Checkpoint(NamedTuple):
    """Tensors by name, and JSON facts."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically, with a digest of all of it. The same content gives the same bytes."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    # One entry: safetensors writes several in an order that changes from process to process.
    metadata = {ENTRY: json.dumps(seal({"facts": checkpoint.facts}, _digest(tensors)))}
    write_atomically(path, save(tensors, metadata))


def read_checkpoint(path: Path, kind: str = "checkpoint") -> Checkpoint:
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
        raise InputError(f"{kind} must be in a folder whose name is UTF-8, got {path}. Rename it.") from None
    except (SafetensorError, KeyError, ValueError):
        raise InputError(f"{kind} must be {requirement}, got {other}.") from None
    require(0 < len(entry) < LONGEST_ENTRY, kind, requirement, f"{path} with {len(entry):,} bytes of facts")
    content = unseal(read_json(entry, kind, path), _digest(tensors), kind, path)
    require(isinstance(content.get("facts"), dict), kind, requirement, f"{path} without facts")
    return Checkpoint(tensors, content["facts"])


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
    """Puts packed tensors back where they came from; returns the carried state, in the structure of `like`.

    `InputError` if they were packed from something else.
    """
    load_model(tensors, model)
    try:
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": _moments(tensors, optimiser), "param_groups": groups})
        _require_moments_fit(optimiser)
        _lay_out_moments(optimiser)
        # A process that was not there has the random numbers that it began with.
        if "random.cpu" in tensors:
            torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["random.cuda"])
        leaves, structure = tree_flatten(like)
        return tree_unflatten([_like(leaf, tensors[f"state.{n}"]) for n, leaf in enumerate(leaves)], structure)
    except InputError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"checkpoint must be one to go on from, got another: {' '.join(str(error).split())}."
        ) from None


def restore(kind: type[T], facts: dict[str, Any]) -> T:
    """The dataclass whose `asdict` became the facts of a checkpoint; `InputError` if they came from something else."""
    blank = vars(kind())
    fits = facts.keys() == blank.keys() and all(_alike(facts[name], value) for name, value in blank.items())
    require(fits, "checkpoint", f"with facts {', '.join(blank)}", facts)
    return kind(**facts)


def load_model(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Loads the tensors named `model.*`; `InputError` if they belong to another model."""
    require_fits(tensors, model)
    model.load_state_dict({name: cut_like(tensors[f"model.{name}"], t) for name, t in model.state_dict().items()})


def require_fits(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """`InputError` unless the tensors named `model.*` are those of `model`, which may be without memory."""
    wanted = {f"model.{name}": list(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: list(tensor.shape) for name, tensor in tensors.items() if name.startswith("model.")}
    for name in sorted(wanted.keys() | found.keys()):
        got = f"{name} {found.get(name, 'missing')} where the model has {wanted.get(name, 'none')}"
        require(wanted.get(name) == found.get(name), "checkpoint", f"of the model in {CONFIG}", got)


def _moments(tensors: dict[str, Tensor], optimiser: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, number, key = name.split(".")
            moments.setdefault(int(number), {})[key] = cut_like(tensor, parameters[int(number)])
    return moments


def _require_moments_fit(optimiser: torch.optim.Optimizer) -> None:
    for parameter, moments in optimiser.state.items():
        shapes = {tuple(moment.shape) for moment in moments.values()}
        require(shapes <= {(), tuple(parameter.shape)}, "checkpoint", "with moments of its model", sorted(shapes))


def _lay_out_moments(optimiser: torch.optim.Optimizer) -> None:
    """Puts moments into memory in the order of their parameters: a fused optimiser takes it for granted."""
    for parameter, moments in optimiser.state.items():
        for name, moment in moments.items():
            if moment.shape == parameter.shape and moment.stride() != parameter.stride():
                moments[name] = torch.empty_like(parameter).copy_(moment)


def _like(leaf: Tensor, saved: Tensor) -> Tensor:
    alike = (saved.shape, saved.dtype) == (leaf.shape, leaf.dtype)
    require(alike, "checkpoint", f"with a state {list(leaf.shape)}", list(saved.shape))
    return saved.to(leaf.device)


def _alike(fact: Any, blank: Any) -> bool:
    """Whether a fact can stand where a dataclass has `blank` by default: None stands for numbers to come."""
    if blank is None:
        return fact is None or (isinstance(fact, list) and all(isinstance(x, int | float) for x in fact))
    return type(fact) is type(blank) and (not isinstance(fact, int) or fact >= 0)


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
