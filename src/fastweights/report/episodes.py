"""Episodes of agents: one figure per model, from its run folder."""

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
"""Largest number of characters of a model's name in a file name."""
LIMIT = 1 << 24
"""Largest size of a figure in bytes."""


def best_runs(group: Group) -> list[Record]:
    """The best run of every model, in the first column that the model ran in; its episode is in the report."""
    best = group.metric.best
    columns = {model: next(c for c in group.columns if group.of(model, c)) for model in group.models}
    return [best(group.of(model, column), key=lambda record: record.value) for model, column in columns.items()]


def undrawn(group: Group) -> Iterator[Path]:
    """The folders of the best runs of agents that have weights, but no figure of an episode."""
    paths = [record.path for record in best_runs(group)] if issubclass(group.settings, ActorCritic) else []
    yield from (path for path in paths if (path / BEST).exists() and not (path / EPISODE).exists())


def _stem(model: str) -> str:
    """The name of a model as a part of a file name. A name made from flags may have any characters and any length."""
    plain = re.sub(r"[^\w.-]+", "-", model, flags=re.ASCII)[:LONGEST]
    digest = hashlib.sha256(model.encode(errors="surrogatepass")).hexdigest()[:8]
    return model if plain == model else f"{plain}-{digest}"


def episodes(group: Group) -> Iterator[Block]:
    """The figures of episodes that exist."""
    drawn = [record for record in best_runs(group) if (record.path / EPISODE).is_file()]
    if drawn:
        yield Heading(3, "Episodes")
    for record in drawn:
        (name, preset, model, column, seed), experiment = record.key, group.experiment
        caption = (
            f"An episode of {experiment.models[model]}, {experiment.columns[column]}, seed {seed}: observations, "
            "expected and received rewards, and writes and reads of each memory."
        )
        content = read_file(record.path / EPISODE, EPISODE, limit=LIMIT)
        yield Figure(f"{name.replace('/', '-')}-{preset}-episode-{_stem(model)}", caption, content, "png")
