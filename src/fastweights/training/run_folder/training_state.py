"""The tensors of a checkpoint by name: of the model, its optimiser, the carried state and the random numbers."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.core.dtensor import cut_like
from fastweights.core.errors import InputError, require
from fastweights.training.run_folder.run import CONFIG

T = TypeVar("T")


def pack(model: nn.Module, optimiser: torch.optim.Optimizer, state: Any) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name. A resumed run is bit-identical to an uninterrupted one."""
    moments = optimiser.state_dict()["state"]
    return {
        **{f"model.{name}": tensor for name, tensor in model.state_dict().items()},
        **{f"optimiser.{n}.{key}": tensor for n, values in moments.items() for key, tensor in values.items()},
        **{f"state.{n}": leaf for n, leaf in enumerate(tree_flatten(state)[0])},
        "random.cpu": torch.get_rng_state(),
        **({"random.cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}),
    }


def unpack(tensors: dict[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer, like: Any) -> Any:
    """Restores packed tensors; returns the carried state, in the structure of `like`.

    Raises:
        InputError: The tensors belong to another training.
    """
    load_model(tensors, model)
    try:
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": _moments(tensors, optimiser), "param_groups": groups})
        _require_moments_fit(optimiser)
        _lay_out_moments(optimiser)
        # A process that was not part of the interrupted training keeps its initial random numbers.
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
            f"checkpoint must be one of this training, got another: {' '.join(str(error).split())}."
        ) from None


def restore(kind: type[T], facts: dict[str, Any]) -> T:
    """The dataclass whose `asdict` is in the facts of a checkpoint; `InputError` if the facts do not fit."""
    blank = vars(kind())
    fits = facts.keys() == blank.keys() and all(_is_valid(facts[name], value) for name, value in blank.items())
    require(fits, "checkpoint", f"a checkpoint with facts {', '.join(blank)}", facts)
    return kind(**facts)


def load_model(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Loads the tensors named `model.*`; `InputError` if they belong to another model."""
    require_fits(tensors, model)
    model.load_state_dict({name: cut_like(tensors[f"model.{name}"], t) for name, t in model.state_dict().items()})


def require_fits(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """`InputError` unless the tensors named `model.*` have the names and shapes of `model`, which may be on meta."""
    expected = {f"model.{name}": list(tensor.shape) for name, tensor in model.state_dict().items()}
    stored = {name: list(tensor.shape) for name, tensor in tensors.items() if name.startswith("model.")}
    for name in sorted(expected.keys() | stored.keys()):
        got = f"{name} {stored.get(name, 'missing')} where the model has {expected.get(name, 'none')}"
        require(expected.get(name) == stored.get(name), "checkpoint", f"a checkpoint of the model in {CONFIG}", got)


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
        require(
            shapes <= {(), tuple(parameter.shape)},
            "checkpoint",
            "a checkpoint with moments of its model",
            sorted(shapes),
        )


def _lay_out_moments(optimiser: torch.optim.Optimizer) -> None:
    """Copies moments to the memory layout of their parameters, which a fused optimiser expects."""
    for parameter, moments in optimiser.state.items():
        for name, moment in moments.items():
            if moment.shape == parameter.shape and moment.stride() != parameter.stride():
                moments[name] = torch.empty_like(parameter).copy_(moment)


def _like(leaf: Tensor, saved: Tensor) -> Tensor:
    fits = (saved.shape, saved.dtype) == (leaf.shape, leaf.dtype)
    require(fits, "checkpoint", f"a checkpoint with a state {list(leaf.shape)}", list(saved.shape))
    return saved.to(leaf.device)


def _is_valid(fact: Any, blank: Any) -> bool:
    """Whether a fact is a valid value of a field with the default `blank`; the default None allows lists of numbers."""
    if blank is None:
        return fact is None or (isinstance(fact, list) and all(isinstance(x, int | float) for x in fact))
    return type(fact) is type(blank) and (not isinstance(fact, int) or fact >= 0)
