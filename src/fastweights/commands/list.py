"""Lists the layers, tasks, recipes and other parts of the library.

Without a kind, it lists the kinds. Layers, cells and rules have a family:

  sum        adds associations, and never forgets
  gated      lets all associations fade
  delta      replaces the value that is stored under a key
  recurrent  depends on its past outputs, so that it can count and track a state
  self-ref   modifies the weights that make its own keys, queries and rates
  other      baselines, and memories of another kind
"""

import argparse
from collections.abc import Mapping

from fastweights.commands._columns import columns, wrapped
from fastweights.registry import KINDS, Description, descriptions

PARTS = {
    "rules": "Update rules.",
    "cells": "Cells: update rules, and other steps of a state.",
    "feature-maps": "Feature maps of keys and queries.",
    "normalisers": "Normalisations of keys and queries.",
    "rate-activations": "Activations of learning rates and decays.",
    "layers": "Layers: all cells, and baselines.",
    "norms": "Positions of LayerNorm in a block.",
    "positions": "Position encodings.",
    "vision-encoders": "Vision encoders.",
    "backends": "Backends that run a cell over time.",
    "tasks": "Tasks: data and metrics.",
    "tokenizers": "Tokenizers of texts.",
    "recipes": "Recipes of fastweights train.",
    "experiments": "Experiments of fastweights reproduce.",
}
"""Descriptions of the kinds."""

FAMILIES = {
    "modify itself": "self-ref",
    "recur": "recurrent",
    "overwrite": "delta",
    "fade": "gated",
    "accumulate": "sum",
}
"""Families by ability. The first ability of a memory in this order decides."""


def add(command: argparse.ArgumentParser) -> None:
    """Adds the kind of parts."""
    kinds = f"Kind of parts: {', '.join(KINDS)}."
    command.add_argument("kind", nargs="?", choices=list(KINDS), metavar="KIND", help=kinds)
    command.add_argument("--long", action="store_true", help="Formula and source of each part, as additional lines.")


def run(options: argparse.Namespace) -> int:
    """Prints one line per part."""
    if options.kind is None:
        print(columns({kind: f"{PARTS[kind]} ({len(descriptions(kind))})" for kind in KINDS}))
        return 0
    parts = descriptions(options.kind)
    texts = {_start(name, parts): part.summary for name, part in parts.items()}
    if options.long:
        texts_and_parts = zip(texts.items(), parts.values(), strict=True)
        print("\n\n".join(_long(start, text, part) for (start, text), part in texts_and_parts))
    else:
        print(columns(texts))
    return 0


def _start(name: str, parts: Mapping[str, Description]) -> str:
    """A name, with its family among memories."""
    if not any(part.abilities for part in parts.values()):
        return name
    abilities = parts[name].abilities
    family = next((family for ability, family in FAMILIES.items() if ability in abilities), "other")
    return f"{name:<{max(map(len, parts))}}  {family:<{max(map(len, FAMILIES.values()))}}"


def _long(start: str, text: str, part: Description) -> str:
    formula = [f"    {line}" for line in part.formula.splitlines()]
    source = [wrapped("    Source: ", part.source)] if part.source else []
    return "\n".join([columns({" ".join(start.split()): text}), *formula, *source])
