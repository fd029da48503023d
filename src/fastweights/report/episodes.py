"""Episodes of agents: a picture a model, from the folder of its run."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from fastweights.core.files import read_file
from fastweights.report.document import Block, Figure, Heading
from fastweights.report.runs import Group, Record
from fastweights.training.run_folder.run import BEST
from fastweights.training.settings.actor_critic import ActorCritic

EPISODE = "episode.png"
LONGEST = 80
"""Characters of a model in the name of a file."""
LIMIT = 1 << 24
"""Bytes of a picture."""


def shown(group: Group) -> list[Record]:
    """The run of every model whose episode is shown: the best one, in the first column that the model ran in."""
    best = group.metric.best
    columns = {model: next(c for c in group.columns if group.of(model, c)) for model in group.models}
    return [best(group.of(model, column), key=lambda record: record.value) for model, column in columns.items()]


def undrawn(group: Group) -> Iterator[Path]:
    """The runs of agents whose episode is to be shown and is not drawn yet, where their weights are there."""
    paths = [record.path for record in shown(group)] if issubclass(group.settings, ActorCritic) else []
    yield from (path for path in paths if (path / BEST).exists() and not (path / EPISODE).exists())


def _stem(model: str) -> str:
    """A model as a part of the name of a file: of flags it may have any characters, and any number of them."""
    plain = re.sub(r"[^\w.-]+", "-", model, flags=re.ASCII)[:LONGEST]
    digest = hashlib.sha256(model.encode(errors="surrogatepass")).hexdigest()[:8]
    return model if plain == model else f"{plain}-{digest}"


def episodes(group: Group) -> Iterator[Block]:
    """Those that were drawn."""
    there = [record for record in shown(group) if (record.path / EPISODE).is_file()]
    if there:
        yield Heading(3, "Episodes")
    for record in there:
        (name, preset, model, column, seed), experiment = record.key, group.experiment
        caption = (
            f"An episode of {experiment.models[model]}, {experiment.columns[column]}, seed {seed}: what was seen, "
            "expected and earned, and what each memory wrote and read."
        )
        picture = read_file(record.path / EPISODE, EPISODE, limit=LIMIT)
        yield Figure(f"{name.replace('/', '-')}-{preset}-episode-{_stem(model)}", caption, picture, "png")
