"""Models and layers of flash-linear-attention on a CPU."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from threading import RLock
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor

from fastweights.adapters.fla.table import METHODS, TABLE
from fastweights.core.errors import InputError, invalid

log = logging.getLogger("fastweights")
IRRELEVANT = frozenset({"backend", "chunk_indices", "cu_seqlens_cpu", "checkpoint_level", "max_num_seqs", "use_graph"})
"""Arguments that control how kernels on a GPU run. They have no effect on a CPU."""
REMEDY = "Leave it out on a CPU."

LOST_CACHES = "generate() of this flash-linear-attention loses the cache with transformers 5.24. Install an older one."


class FunctionPlace(NamedTuple):
    """A place that held a function of flash-linear-attention.

    Attributes:
        namespace: Names and values of a module, or a table of functions.
        name: Name of the function there.
        original: The function.
    """

    namespace: MutableMapping[str, Any]
    name: str
    original: Any


_places: list[FunctionPlace] = []
_methods: list[tuple[type, str, Any]] = []
"""Classes, names of their replaced methods, and these methods."""
_names: list[str] = []
_lock = RLock()


def enable() -> list[str]:
    """Runs models and layers of flash-linear-attention on a CPU.

    Its memories run on this library's kernels, and its norms, activations, convolutions, positions and losses in
    PyTorch. A function is replaced wherever a loaded module refers to it, so that models that were made before run,
    too. Copies in `functools.partial` objects, default arguments and closures are not reached. Calls with tensors on
    other devices go to the original functions.

    A function whose parameters are not known stays as it is, and a line in the log names it.

    Returns:
        The functions that were replaced.

    Raises:
        InputError: flash-linear-attention, Triton or transformers is not installed.
    """
    with _lock:
        if not _names:
            replacements = dict(_replacements())
            _names.extend(path for path, _, _ in replacements.values())
            by_identity = {key: (original, run) for key, (_, original, run) in replacements.items()}
            for namespace in _namespaces():
                _replace(namespace, by_identity)
            _names.extend(_replace_methods())
            if not keeps_caches():
                log.warning(LOST_CACHES)
        return list(_names)


def disable() -> None:
    """Restores the functions that `enable` replaced."""
    with _lock:
        for place in reversed(_places):
            place.namespace[place.name] = place.original
        for owner, name, method in _methods:
            setattr(owner, name, method)
        for entries in (_places, _methods, _names):
            entries.clear()


def keeps_caches() -> bool:
    """Whether `generate` passes caches to the models: transformers renamed them in 5.24."""
    from fla.models.generation_utils import FLAGenerationMixin

    from fastweights.adapters.transformers.state_cache import CACHE

    return CACHE in signature(FLAGenerationMixin.prepare_inputs_for_generation).parameters


def _replacements() -> Iterator[tuple[int, tuple[str, Any, Callable[..., Any]]]]:
    """By the identity of a function: its full name, the function and its replacement."""
    _load()
    for module_name, functions in TABLE.items():
        for name, replacement in functions.items():
            path = f"{module_name}.{name}"
            try:
                original = getattr(import_module(module_name), name)
            except (ImportError, AttributeError):
                log.warning("%s is not in this version of flash-linear-attention. It is not replaced.", path)
                continue
            if _is_known(original, replacement):
                yield id(original), (path, original, _on_cpu(path, original, replacement))
            else:
                log.warning("%s has unknown parameters. It is not replaced.", path)


def _load() -> None:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Triton is not supported")  # It is not needed any more.
            for name in ("fla", "fla.layers", "fla.models", "fla.modules", "fla.ops"):
                import_module(name)
    except ModuleNotFoundError as error:
        remedy = "Try pip install flash-linear-attention triton, on Linux."
        raise InputError(f"{error.name} must be installed, got no such module. {remedy}") from None


def _is_known(original: Callable[..., Any], replacement: Callable[..., Any]) -> bool:
    """Whether two functions have the same required parameters, up to ones that are optional in the other."""
    original_parameters, parameters = _parameters(original, replacement), signature(replacement).parameters
    return _required(original_parameters) <= parameters.keys() and _required(parameters) <= original_parameters.keys()


def _parameters(original: Callable[..., Any], replacement: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The parameters of a function; those of its replacement for the `apply` of an autograd function."""
    try:
        parameters = signature(original).parameters
    except ValueError:
        return signature(replacement).parameters
    is_apply = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters.values())
    return signature(replacement).parameters if is_apply else parameters


def _required(parameters: Mapping[str, Parameter]) -> set[str]:
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name for name, p in parameters.items() if p.kind in kinds and p.default is Parameter.empty}


def _on_cpu(path: str, original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs the replacement for tensors on a CPU, and otherwise the original."""
    known = frozenset(signature(replacement).parameters)
    parameters = _parameters(original, replacement).values()
    positional = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]

    @wraps(replacement)
    def run(*arguments: Any, **options: Any) -> Any:
        if not _is_on_cpu(arguments, options):
            return original(*arguments, **options)
        options = {**dict(zip(positional, arguments, strict=False)), **options}
        for name in options.keys() - known:
            value = options.pop(name)
            if value is not None and value is not False and name not in IRRELEVANT:
                raise invalid(f"{name} of {path}", "None", repr(value), REMEDY)
        return replacement(**options)

    return run


def _is_on_cpu(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    tensors = (x for x in (*arguments, *options.values()) if isinstance(x, Tensor))
    return next((x.device.type == "cpu" for x in tensors), False)


def _namespaces() -> Iterator[MutableMapping[str, Any]]:
    """Names of all loaded modules, and the tables of functions in those of flash-linear-attention."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            yield vars(module)
            if module.__name__.partition(".")[0] == "fla":
                yield from (x for name, x in list(vars(module).items()) if isinstance(x, dict) and name.isupper())


def _replace(namespace: MutableMapping[str, Any], replacements: dict[int, tuple[Any, Callable[..., Any]]]) -> None:
    for name, value in list(namespace.items()):
        original, run = replacements.get(id(value), (None, None))
        if original is not None and original is value:
            _places.append(FunctionPlace(namespace, name, value))
            namespace[name] = run


def _replace_methods() -> Iterator[str]:
    """Replaces methods for tensors on a CPU, and yields their full names."""
    for class_path, methods in METHODS.items():
        module_name, _, class_name = class_path.rpartition(".")
        owner = getattr(import_module(module_name), class_name)
        for name, replacement in methods.items():
            path, original = f"{class_path}.{name}", getattr(owner, name)
            if _is_known(original, replacement):
                _methods.append((owner, name, original))
                setattr(owner, name, _method_on_cpu(original, replacement))
                yield path
            else:
                log.warning("%s has unknown parameters. It is not replaced.", path)


def _method_on_cpu(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The method that runs the replacement if its first argument is on a CPU, and otherwise the original."""

    @wraps(original)
    def method(self: Any, first: Tensor, *arguments: Any, **options: Any) -> Any:
        run = replacement if first.device.type == "cpu" else original
        return run(self, first, *arguments, **options)

    return method
