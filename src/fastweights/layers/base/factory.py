"""Layers by name, of any rule or cell, and of the user's own."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import nn

from fastweights.cell import Cell
from fastweights.core.arguments import Size, checked
from fastweights.core.errors import InputError, require, require_name
from fastweights.core.import_path import find, is_address, names_in
from fastweights.layers.base.fast_weight import FastWeight, takes_keys
from fastweights.registry import LAYERS, hyphens, names

LayerKind = str | Cell | Callable[..., Any]
"""A name from `fastweights list layers`, `MODULE:NAME` or `PATH.py:NAME` of the user's own, or what stands there.

That is a rule, a step or a `Cell`, which `FastWeight` makes a layer of; or a class or a function that makes a layer of
the common interface, called with `d_model`, its first parameter, and with `heads` if it takes them.
"""
LayerKinds = LayerKind | Sequence[LayerKind]
"""One for all blocks of a stack, or several that take turns."""


def layer_names() -> list[str]:
    """Every name of the library's own that `make_layer` takes."""
    return names("layers")


def layer_options(layer: LayerKinds) -> set[str]:
    """The options that a layer takes, `heads` among them if it has any; of several layers, those of any of them."""
    return {option for kind in layer_kinds(layer) for option in _options(_maker(kind))}


@checked
def make_layer(layer: LayerKind, d_model: Size, heads: Size, **options: Any) -> nn.Module:
    """A layer; `heads` is left out for one that has none.

    Args:
        layer: A name from `fastweights list layers`, `MODULE:NAME` or `PATH.py:NAME` of your own, or what stands there:
            a rule, a step, a `Cell`, or a class or function that makes a layer, with `d_model` as its first parameter.
        d_model: Size of the input and output.
        heads: Number of memories.
        options: What else the layer takes: see `layer_options`.

    Raises:
        InputError: there is no such layer, or it has no such option.

    >>> type(make_layer("delta-net", d_model=32, heads=4)).__name__
    'DeltaNet'
    >>> make_layer("gated-delta", d_model=32, heads=4, feature_map="dpfp-2").cell.name
    'gated-delta'
    """
    maker = _maker(layer)
    taken = _options(maker)
    for option, value in options.items():
        _require_option(option in taken, option, value, _called(layer))
    if "heads" in taken:
        options = {"heads": heads, **options}
    return _call(maker, _called(layer), d_model, options)


@checked
def make_layers(layer: LayerKinds, depth: Size, d_model: Size, heads: Size, /, **options: Any) -> Iterator[nn.Module]:
    """The layers of a stack of `depth` blocks, one after the other: the same everywhere, or several that take turns.

    Args:
        layer: What `make_layer` takes, or a list of that, or names with commas between them. Block n has the n-th of
            them, and after the last comes the first again: "delta-net,delta-net,softmax-attention" in six blocks has
            softmax attention in the third and the sixth.
        depth: Number of blocks.
        d_model: Size of the input and output.
        heads: Number of memories a layer.
        options: Each goes to all layers that take it.

    Raises:
        InputError: there are more layers than blocks, or none of them has an option.

    >>> [type(made).__name__ for made in make_layers("delta-net,lstm", 3, 8, 2, feature_map="elu")]
    ['DeltaNet', 'LSTM', 'DeltaNet']
    """
    kinds = layer_kinds(layer)
    remedy = "Each block has one, and they take turns."
    require(len(kinds) <= depth, "layer", f"at most {depth} layers for as many blocks", len(kinds), remedy)
    taken = layer_options(kinds)
    for option, value in options.items():
        _require_option(option in taken, option, value, ", ".join(map(_called, kinds)))
    for n in range(depth):
        kind = kinds[n % len(kinds)]
        own = {option: value for option, value in options.items() if option in _options(_maker(kind))}
        yield make_layer(kind, d_model, heads, **own)


def layer_kinds(layer: LayerKinds) -> list[LayerKind]:
    """The layers in a list of them, or in one name with commas."""
    if isinstance(layer, str):
        return list(names_in(layer))
    if not isinstance(layer, Sequence):
        return [layer]
    require(len(layer) >= 1, "layer", "at least one", layer)
    return list(layer)


def _maker(kind: LayerKind) -> Callable[..., Any]:
    """What makes the layer: called with `d_model` and options."""
    found: Any = find(kind) if isinstance(kind, str) and is_address(kind) else kind
    if isinstance(found, str):
        name = hyphens(found)
        require_name("layer", name, layer_names())
        found = LAYERS.load(name) if name in LAYERS.names() else Cell.named(name)
    wanted = "a name, a rule, a step, a Cell, or a class or function that makes a layer"
    require(callable(found) and not isinstance(found, nn.Module), "layer", wanted, f"a {type(found).__name__}")
    return found if _makes_layers(found) else partial(FastWeight, cell=Cell.of(found))


def _makes_layers(found: Any) -> bool:
    if isinstance(found, type | Cell):
        return isinstance(found, type)
    return next(iter(inspect.signature(found).parameters), None) == "d_model"


def _options(maker: Callable[..., Any]) -> set[str]:
    options = set(list(inspect.signature(maker).parameters)[1:])
    if not isinstance(maker, partial):
        return options
    takes = takes_keys(maker.keywords["cell"])
    return options - ({"cell"} if takes else {"cell", "feature_map", "normaliser"})


def _call(maker: Callable[..., Any], layer: str, d_model: int, options: dict[str, Any]) -> nn.Module:
    try:
        inspect.signature(maker).bind(d_model, **options)
    except TypeError as error:
        raise InputError(f"options must be all that {layer} needs, got {sorted(options)}: {error}.") from None
    made = maker(d_model, **options)
    fits = isinstance(made, nn.Module) and hasattr(made, "initial_state")
    interface = "a maker of modules with forward(x, state, reset) and initial_state(batch_size)"
    require(fits, "layer", interface, f"{layer}, which makes a {type(made).__name__}")
    return made


def _require_option(taken: bool, option: str, value: Any, layer: str) -> None:
    require(taken, option, f"left out for {layer}, which has no such option", repr(value))


def _called(kind: LayerKind) -> str:
    return kind if isinstance(kind, str) else str(getattr(kind, "name", getattr(kind, "__name__", kind)))
