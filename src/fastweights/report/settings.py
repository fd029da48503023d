"""The settings of runs as tables: name, our value, the paper's value if it differs, and meaning."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from fastweights.core.docstrings import arguments
from fastweights.experiments.experiment import FREE
from fastweights.registry import MODELS, TASKS, describe
from fastweights.report.document import Block, Grid, Paragraph
from fastweights.report.runs import Group
from fastweights.training.settings._training import ANY_TIME, HARDWARE, Training

PAPER, SMOKE = "paper", "smoke"
PUNCTUATION = re.compile(r"[\\\[\]*<|]")
"""Characters with a meaning in Markdown; settings that are regular expressions have them."""
Place = tuple[str, str]
"""A model and a column."""
Trials = Sequence[tuple[Place, Mapping[str, Any]]]
"""The trials of runs, with their places."""
Values = Mapping[str, Mapping[Place, str]]
"""Values by the name of a setting and by place."""


class SettingsTable(NamedTuple):
    """The settings of the task, of the model or of training: our values, the paper's, and the meaning by name."""

    title: str
    our_values: Values
    paper_values: Values
    meaning: Mapping[str, str]


def settings(group: Group) -> Iterator[Block]:
    """One table each for the task, the model and its training."""
    tables = [_table(part, group) for part in _parts(group)]
    yield Paragraph("Settings of the hardware are listed only where they differ from the defaults.")
    if group.preset != PAPER and any("preset paper" in table.header for table in tables):
        yield Paragraph("An empty cell of preset paper means the same value.")
    yield from tables


def are_the_papers(group: Group) -> bool:
    """Whether a reduced preset has the paper's settings, and is reduced in models, columns or seeds alone."""
    if not _has_paper_preset(group):
        return False
    task, model, training = _parts(group)
    # A run may be older than a setting of training.
    same_names = all(part.our_values.keys() == part.paper_values.keys() for part in (task, model))
    parts = (task, model, training)
    return same_names and all(_is_same(part, x) for part in parts for x in part.our_values if x not in ANY_TIME)


def _is_same(part: SettingsTable, name: str) -> bool:
    paper_values = part.paper_values.get(name, {})
    return all(paper_values.get(place) == value for place, value in part.our_values[name].items())


def _has_paper_preset(group: Group) -> bool:
    return group.preset not in (PAPER, FREE) and PAPER in group.experiment.presets


def _parts(group: Group) -> Iterator[SettingsTable]:
    experiment = group.experiment
    our_values: Trials = [(record.key[2:4], record.config["trial"]) for record in group.records]
    paper_values = our_values
    if _has_paper_preset(group):
        paper_values = [(place, experiment.trial(*place, PAPER).facts()) for place in dict(our_values)]
    for title, folder in {"task": TASKS, "model": MODELS}.items():
        texts = [folder.docstrings(name) for name in dict.fromkeys(trial[title] for _, trial in our_values)]
        meaning = {title: " ".join(describe(own).summary for own, *_ in texts), **_meaning(*texts)}
        by_name = partial(_by_name, options=f"{title}_options", without=experiment.fold, title=title)
        yield SettingsTable(title, by_name(our_values), by_name(paper_values), meaning)
    by_name = partial(_by_name, options="training", without="seed")
    lineage = [kind.__doc__ or "" for kind in group.settings.__mro__]
    yield SettingsTable("training", by_name(our_values), by_name(paper_values), _meaning(lineage))


def _meaning(*docstrings: list[str]) -> dict[str, str]:
    """The descriptions of arguments by name, from the docstrings of classes and of their base classes."""
    return {name: words for texts in docstrings for text in texts[::-1] for name, words in arguments(text).items()}


def _by_name(trials: Trials, options: str, without: str, title: str = "") -> Values:
    """The values by name and place; several values of one place are joined by "or".

    Args:
        trials: The trials.
        options: Key of the settings in a trial.
        without: Setting to leave out, because it differs in every run.
        title: Key of the name of the task or the model, which becomes the first setting; empty for none.
    """
    values: dict[str, dict[Place, list[Any]]] = {}
    for place, trial in trials:
        named = {title: trial[title]} if title else {}
        for name, value in {**named, **trial[options]}.items():
            distinct = values.setdefault(name, {}).setdefault(place, [])
            if value not in distinct:
                distinct.append(value)
    values.pop(without, None)
    return {
        name: {place: " or ".join(map(_text, distinct)) for place, distinct in places.items()}
        for name, places in values.items()
    }


def _table(part: SettingsTable, group: Group) -> Grid:
    """One row per setting; empty columns are left out."""
    names = [name for name in part.our_values if not _is_usual(part, name, group.settings)]
    rows = [[name.replace("_", " "), *_values(part, name, group), part.meaning.get(name, "")] for name in names]
    header = [part.title, f"preset {group.preset}", "preset paper", "meaning"]
    filled = [n for n in range(4) if any(row[n] for row in rows)]
    return Grid([header[n] for n in filled], [[row[n] for n in filled] for row in rows], words=True)


def _is_usual(part: SettingsTable, name: str, kind: type[Training]) -> bool:
    """Whether a setting of the hardware has its default, of this loop or of all, in our runs and those of the paper."""
    if name not in HARDWARE:
        return False
    values = {*part.our_values[name].values(), *part.paper_values.get(name, {}).values()}
    return values <= {_text(field.default) for loop in (kind, Training) for field in fields(loop) if field.name == name}


def _values(part: SettingsTable, name: str, group: Group) -> tuple[str, str]:
    """Our value, and the paper's if it differs."""
    our_values, paper_values = part.our_values[name], part.paper_values.get(name, {})
    if _is_same(part, name):
        return _by_place(our_values, group), ""
    return _by_place(our_values, group), _by_place(paper_values, group) if paper_values else "the default"


def _by_place(values: Mapping[Place, str], group: Group) -> str:
    """The value; if it differs, the values by model, by column, or by both."""
    models, columns = group.models, group.columns
    ran = {record.key[2:4] for record in group.records}
    both = {(m, c): f"{models[m]}, {columns[c]}" for c in columns for m in models if (m, c) in ran}
    by_model, by_column = ({place: labels[place[n]] for place in both} for n, labels in enumerate((models, columns)))
    return next(_sentence(values, names) for names in (by_model, by_column, both) if _decides(names, values))


def _decides(names: Mapping[Place, str], values: Mapping[Place, str]) -> bool:
    """Whether all places with the same name have the same value, or none."""
    pairs = {(name, values.get(place)) for place, name in names.items()}
    return len(pairs) == len(set(names.values()))


def _sentence(values: Mapping[Place, str], names: Mapping[Place, str]) -> str:
    """The values with the names that have them: `128 for LSTM; 256 for the others`; the value alone if all have it."""
    names_of: dict[str, list[str]] = {}
    for place, name in names.items():
        if place in values and name not in names_of.setdefault(values[place], []):
            names_of[values[place]].append(name)
    *few, (value, most) = sorted(names_of.items(), key=lambda item: len(item[1]))
    rest = [name for name in dict.fromkeys(names.values()) if name not in most]
    if not rest:
        return value
    if len(rest) < len(most):
        all_have_values = len(rest) == sum(len(some) for _, some in few)
        most = ["the others" if all_have_values else f"all but {', '.join(rest)}"]
    return "; ".join(f"{text} for {', '.join(some)}" for text, some in (*few, (value, most)))


def _text(value: object) -> str:
    if value is None or value in ({}, [], ()):
        return "none"
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case dict():
            return "; ".join(f"{name.replace('_', ' ')} {_text(part)}" for name, part in value.items())
        case [bool(), *_]:
            return f"at {', '.join(str(n) for n, mark in enumerate(value, 1) if mark) or 'none'}"
        case list() | tuple():
            return ", ".join(map(_text, value))
        case str() if PUNCTUATION.search(value):
            return f"`{value}`"
        case _:
            return str(value)
