"""Layers by name, from any rule or cell, and from code of the user."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import Size, checked
from fastweights.core.errors import InputError, require, require_name
from fastweights.core.import_path import find, is_address, names_in
from fastweights.core.other_names import unexpected
from fastweights.layers.base.fast_weight import FastWeight, takes_keys
from fastweights.registry import LAYERS, hyphens, names

LayerKind = str | Cell | Callable[..., Any]
"""A name from `fastweights list layers`, an import path `MODULE:NAME` or `PATH.py:NAME`, or the object itself.

The object is a rule, a step or a `Cell`, which `FastWeight` turns into a layer, or a class or function that returns a
layer with the common interface. Its first parameter is `d_model`; `num_heads` is passed if it has such a parameter.
"""
LayerKinds = LayerKind | Sequence[LayerKind]
"""One layer for all blocks of a stack, or several that alternate."""


def layer_names() -> list[str]:
    """Names of the library that `make_layer` accepts.

    Returns:
        The sorted names.
    """
    return names("layers")


def layer_options(layer: LayerKinds) -> set[str]:
    """Names of the options that a layer accepts in `make_layer`.

    Args:
        layer: Layer, as in `make_layer`, or several as in `make_layers`.

    Returns:
        The names, with `num_heads` if the layer has heads. For several layers: the union of their options.

    Example:
        >>> sorted(layer_options("lstm"))
        ['initial_state', 'input_size', 'num_layers']
    """
    return {option for kind in layer_kinds(layer) for option in _options(_maker(kind))}


@checked
def make_layer(layer: LayerKind, d_model: Size, num_heads: Size, **options: Any) -> nn.Module:
    """Returns a layer by name, or from a rule, a step, a cell, a class or a function.

    Args:
        layer: Name from `fastweights list layers`, import path `MODULE:NAME` or `PATH.py:NAME`, or the object itself: a
            rule, a step, a `Cell`, or a class or function with the first parameter `d_model` that returns a layer.
        d_model: Size D of the input and the output.
        num_heads: Number of heads, each with its own memory. Layers without heads, such as "lstm", ignore it.
        options: Further options of the layer: see `layer_options`.

    Returns:
        The layer, a `torch.nn.Module` that maps x `[B, T, D]` and a state to y `[B, T, D]` and the next state: see
        `Layer`.

    Raises:
        InputError: the layer or one of its options does not exist.

    Example:
        >>> type(make_layer("delta-net", d_model=32, num_heads=4)).__name__
        'DeltaNet'
        >>> make_layer(
        ...     "gated-delta", d_model=32, num_heads=4, feature_map="dpfp-2"
        ... ).cell.name
        'gated-delta'
    """
    maker = _maker(layer)
    accepted = _options(maker)
    for option in options:
        _require_option(option, accepted, _name_of(layer))
    if "num_heads" in accepted:
        options = {"num_heads": num_heads, **options}
    return _call(maker, _name_of(layer), d_model, options)


@checked
def make_layers(
    layer: LayerKinds, num_layers: Size, d_model: Size, num_heads: Size, /, **options: Any
) -> Iterator[nn.Module]:
    """Creates the layers of a stack of `num_layers` blocks: the same in every block, or several that alternate.

    Args:
        layer: Layer as in `make_layer`, a list of layers, or names separated by commas. They alternate:
            "delta-net,delta-net,softmax-attention" in six blocks has softmax attention in the third and the sixth
            block.
        num_layers: Number of blocks.
        d_model: Size D of the input and the output.
        num_heads: Number of heads per layer. Layers without heads ignore it.
        options: Further options. Each option is passed to all layers that accept it.

    Yields:
        The layers, one per block.

    Raises:
        InputError: there are more layers than blocks, or no layer has one of the options.

    Example:
        >>> [
        ...     type(layer).__name__
        ...     for layer in make_layers("delta-net,lstm", 3, 8, 2, feature_map="elu")
        ... ]
        ['DeltaNet', 'LSTM', 'DeltaNet']
    """
    kinds = layer_kinds(layer)
    remedy = "Each block has one layer, and the layers alternate."
    require(
        len(kinds) <= num_layers,
        "layer",
        f"at most {num_layers} layers for {num_layers} blocks",
        f"{len(kinds)} layers",
        remedy,
    )
    accepted = layer_options(kinds)
    for option in options:
        _require_option(option, accepted, ", ".join(map(_name_of, kinds)))
    for n in range(num_layers):
        kind = kinds[n % len(kinds)]
        layer_options_ = {option: value for option, value in options.items() if option in _options(_maker(kind))}
        yield make_layer(kind, d_model, num_heads, **layer_options_)


def layer_kinds(layer: LayerKinds) -> list[LayerKind]:
    """Splits a list of layers, or one text of names separated by commas."""
    if isinstance(layer, str):
        return list(names_in(layer))
    if not isinstance(layer, Sequence):
        return [layer]
    require(len(layer) >= 1, "layer", "at least one layer", layer)
    return list(layer)


def _maker(kind: LayerKind) -> Callable[..., Any]:
    """The class or function that returns the layer when it is called with `d_model` and options."""
    kind_object: Any = find(kind) if isinstance(kind, str) and is_address(kind) else kind
    if isinstance(kind_object, str):
        name = hyphens(kind_object)
        require_name("layer", name, layer_names())
        kind_object = LAYERS.load(name) if name in LAYERS.names() else Cell.from_name(name)
    requirement = "a name, a rule, a step, a Cell, or a class or function that returns a layer"
    require(
        callable(kind_object) and not isinstance(kind_object, nn.Module),
        "layer",
        requirement,
        f"a {type(kind_object).__name__}",
    )
    return kind_object if _makes_layers(kind_object) else partial(FastWeight, cell=Cell.from_function(kind_object))


def _makes_layers(kind: Any) -> bool:
    if isinstance(kind, type | Cell):
        return isinstance(kind, type)
    return next(iter(inspect.signature(kind).parameters), None) == "d_model"


def _options(maker: Callable[..., Any]) -> set[str]:
    options = set(list(inspect.signature(maker).parameters)[1:])
    if not isinstance(maker, partial):
        return options
    has_keys = takes_keys(maker.keywords["cell"])
    return options - ({"cell"} if has_keys else {"cell", "feature_map", "qk_norm"})


def _call(maker: Callable[..., Any], layer: str, d_model: int, options: dict[str, Any]) -> nn.Module:
    try:
        inspect.signature(maker).bind(d_model, **options)
    except TypeError as error:
        raise InputError(f"options must be those of {layer}, got {sorted(options)}: {error}.") from None
    module = maker(d_model, **options)
    fits = isinstance(module, nn.Module) and hasattr(module, "initial_state")
    interface = "a class or function of modules with forward(x, state, reset) and initial_state(batch_size)"
    require(fits, "layer", interface, f"{layer}, which returned a {type(module).__name__}")
    return module


def _require_option(option: str, accepted: set[str], layer: str) -> None:
    if option not in accepted:
        raise unexpected(option, sorted(accepted), layer)


def _name_of(kind: LayerKind) -> str:
    return kind if isinstance(kind, str) else str(getattr(kind, "name", getattr(kind, "__name__", kind)))
