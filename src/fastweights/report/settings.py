"""What runs were made with, as tables: named, with what each setting means, and what the paper has instead."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fastweights.experiments.experiment import FREE
from fastweights.registry import MODELS, TASKS, arguments, describe
from fastweights.report.document import Block, Grid, Paragraph
from fastweights.report.runs import Group

PAPER, SMOKE = "paper", "smoke"
PUNCTUATION = re.compile(r"[\\\[\]*<|]")
"""What a page would take for markup, as regular expressions have it."""
Place = tuple[str, str]
"""A model and a column."""
Trials = Sequence[tuple[Place, Mapping[str, Any]]]
"""Of every run, or of every place."""
Values = Mapping[str, Mapping[Place, str]]
"""By the name of a setting and by place."""


class Part(NamedTuple):
    """Settings that belong together, ours and the paper's, and what they mean."""

    title: str
    ours: Values
    theirs: Values
    meaning: Mapping[str, str]


def settings(group: Group) -> Iterator[Block]:
    """A table each for the task, the model and its training."""
    tables = [_table(part, group) for part in _parts(group)]
    if group.preset != PAPER and any("preset paper" in table.header for table in tables):
        yield Paragraph("Where the column of preset paper is empty, it has the same.")
    yield from tables


def are_the_papers(group: Group) -> bool:
    """Whether a reduced preset has the paper's settings, and is reduced in models, columns or seeds alone."""
    if not _is_beside_paper(group):
        return False
    task, model, training = _parts(group)
    # Of training, a run may be older than a setting.
    named_alike = all(part.ours.keys() == part.theirs.keys() for part in (task, model))
    return named_alike and all(_is_same(part, name) for part in (task, model, training) for name in part.ours)


def _is_same(part: Part, name: str) -> bool:
    theirs = part.theirs.get(name, {})
    return all(theirs.get(place) == value for place, value in part.ours[name].items())


def _is_beside_paper(group: Group) -> bool:
    return group.preset not in (PAPER, FREE) and PAPER in group.experiment.presets


def _parts(group: Group) -> Iterator[Part]:
    experiment = group.experiment
    ours: Trials = [(record.key[2:4], record.config["trial"]) for record in group.records]
    beside = _is_beside_paper(group)
    theirs: Trials = [(place, experiment.trial(*place, PAPER).facts()) for place in dict(ours)] if beside else ours
    for title, folder in {"task": TASKS, "model": MODELS}.items():
        texts = [folder.docstrings(name) for name in dict.fromkeys(trial[title] for _, trial in ours)]
        meaning = {title: " ".join(describe(own).summary for own, *_ in texts), **_meaning(*texts)}
        by_name = partial(_by_name, options=f"{title}_options", without=experiment.fold, title=title)
        yield Part(title, by_name(ours), by_name(theirs), meaning)
    by_name = partial(_by_name, options="training", without="seed")
    lineage = [kind.__doc__ or "" for kind in group.settings.__mro__]
    yield Part("training", by_name(ours), by_name(theirs), _meaning(lineage))


def _meaning(*docstrings: list[str]) -> dict[str, str]:
    """What classes say of their arguments, and then those that they inherit from."""
    return {name: words for texts in docstrings for text in texts[::-1] for name, words in arguments(text).items()}


def _by_name(trials: Trials, options: str, without: str, title: str = "") -> Values:
    """What every place has under a name, but for what is another in every run; of others that differ, each."""
    found: dict[str, dict[Place, list[Any]]] = {}
    for place, trial in trials:
        named = {title: trial[title]} if title else {}
        for name, value in {**named, **trial[options]}.items():
            seen = found.setdefault(name, {}).setdefault(place, [])
            if value not in seen:
                seen.append(value)
    found.pop(without, None)
    return {name: {place: " or ".join(map(_text, seen)) for place, seen in of.items()} for name, of in found.items()}


def _table(part: Part, group: Group) -> Grid:
    """A row a setting; columns that would be empty are left out."""
    rows = [[name.replace("_", " "), *_values(part, name, group), part.meaning.get(name, "")] for name in part.ours]
    header = [part.title, f"preset {group.preset}", "preset paper", ""]
    kept = [n for n in range(4) if any(row[n] for row in rows)]
    return Grid([header[n] for n in kept], [[row[n] for n in kept] for row in rows], words=True)


def _values(part: Part, name: str, group: Group) -> tuple[str, str]:
    """Ours, and the paper's where it is another."""
    ours, theirs = part.ours[name], part.theirs.get(name, {})
    if _is_same(part, name):
        return _told(ours, group), ""
    return _told(ours, group), _told(theirs, group) if theirs else "the default"


def _told(values: Mapping[Place, str], group: Group) -> str:
    """A value, or which models, columns or models in columns have which."""
    models, columns = group.models, group.columns
    ran = {record.key[2:4] for record in group.records}
    both = {(m, c): f"{models[m]}, {columns[c]}" for c in columns for m in models if (m, c) in ran}
    by_model, by_column = ({place: labels[place[n]] for place in both} for n, labels in enumerate((models, columns)))
    return next(_sentence(values, names) for names in (by_model, by_column, both) if _decides(names, values))


def _decides(names: Mapping[Place, str], values: Mapping[Place, str]) -> bool:
    """Whether places with one name have one value, or none."""
    told = {(name, values.get(place)) for place, name in names.items()}
    return len(told) == len(set(names.values()))


def _sentence(values: Mapping[Place, str], names: Mapping[Place, str]) -> str:
    """`128 for LSTM; 256 for the others`; only the value if all have it."""
    having: dict[str, list[str]] = {}
    for place, name in names.items():
        if place in values and name not in having.setdefault(values[place], []):
            having[values[place]].append(name)
    *few, (value, most) = sorted(having.items(), key=lambda item: len(item[1]))
    rest = [name for name in dict.fromkeys(names.values()) if name not in most]
    if not rest:
        return value
    if len(rest) < len(most):
        everyone_has_one = len(rest) == sum(len(some) for _, some in few)
        most = ["the others" if everyone_has_one else f"all but {', '.join(rest)}"]
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
