"""The page of all tasks, from their docstrings and options. Docstrings have the facts that depend on files."""

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

from fastweights.core.docstrings import arguments
from fastweights.registry import EXPERIMENTS, TASKS, marked
from fastweights.tasks import Task

INPUTS = {
    "tokens": "Tokens `[B, T]`, each one of {}",
    "pairs": "Pairs of tokens `[B, T, 2]`, keys of {} different ones",
    "features": "Features `[B, T, input_size]`",
}


INTRODUCTION = """# All tasks

One section per task. `fastweights list tasks` prints the names. [Tasks and data](../how-to/tasks.md) explains how to
use them.

```python
>>> from fastweights.registry import TASKS
>>> task = TASKS.load("letters")(characters=10_000)

```"""


def task_page() -> str:
    """The page of all tasks."""
    return "\n\n".join([INTRODUCTION, *(part for name in TASKS.names() for part in _section(name))]) + "\n"


def _section(name: str) -> list[str]:
    kind: type[Task] = TASKS.load(name)
    docstring = inspect.getdoc(kind) or ""
    summary, *text = [p for p in docstring.split("\n\n") if not p.startswith(("Source:", "Files:", "Needs:", "Args:"))]
    facts = FACTS[kind.kind()](kind, docstring) if kind.kind() in FACTS else []
    best = "lowest" if kind.main_metric.low_is_good else "highest"
    return [
        f"## {name}",
        summary,
        *text,
        f"**Source.** {marked(docstring, 'Source:')}",
        *facts,
        f"**Metric.** `{kind.main_metric.name}`: weights are chosen where it is {best} on the validation set.",
        *_options(kind),
        *_experiments(name),
    ]


def _facts_of_labelled(kind: Any, docstring: str) -> list[str]:
    return _facts_of_files(kind, docstring) if marked(docstring, "Files:") else _facts(kind())


def _facts_of_stream(kind: Any, docstring: str) -> list[str]:
    files = [f"**Files.** {marked(docstring, 'Files:')}"]
    if not marked(docstring, "Files:").startswith("none"):
        return files
    task = kind()
    sizes = "{:,} tokens for training, {:,} for validation, {:,} for the test".format(
        *map(len, (task.training, task.validation, task.test))
    )
    (size,) = task.arguments
    return [*files, f"**Stream.** {sizes}, each one of {size:,}."]


def _facts_of_pairs(kind: Any, docstring: str) -> list[str]:
    return [f"**Files.** {marked(docstring, 'Files:')}"]


def _facts_of_episodes(kind: Any, docstring: str) -> list[str]:
    return [
        f"**Files.** {marked(docstring, 'Files:')}",
        "**Inputs.** Images `[B, T, channels, side, side]` (uint8), with the label code and the data set of each.",
        f"**Chance.** {inspect.getdoc(kind.chance)}",
    ]


def _facts_of_environment(kind: Any, docstring: str) -> list[str]:
    if needed := marked(docstring, "Needs:"):
        return [f"**Needs.** {needed}"]
    task = kind()
    return [f"**Observations.** `{list(task.shape)}` numbers. **Actions.** `{task.actions}`."]


FACTS = {
    "environment": _facts_of_environment,
    "episodes": _facts_of_episodes,
    "labelled": _facts_of_labelled,
    "pairs": _facts_of_pairs,
    "stream": _facts_of_stream,
}
"""Facts of a task by kind."""


def _facts_of_files(kind: Any, docstring: str) -> list[str]:
    return [
        f"**Files.** {marked(docstring, 'Files:')}",
        f"**Inputs.** {INPUTS.get(kind.input_kind, 'Tokens `[B, T]` or features `[B, T, D]`, and their lengths')}.",
        f"**Chance.** {inspect.getdoc(kind.chance)}",
    ]


def _facts(task: Any) -> list[str]:
    if task.training_size is None:
        sizes = f"{task.evaluation_size:,} for validation, as many for the test; for training always new ones"
    else:
        sizes = "{:,} for training, {:,} for validation, {:,} for the test".format(*(len(s.targets) for s in task.sets))
    chance = ", ".join(f"{metric.replace('_', ' ')} {value:.4g}" for metric, value in task.chance.items())
    inputs = INPUTS[task.input_kind].format(f"{task.input_size:,}")
    return [
        f"**Sequences.** {sizes}. They are drawn from seeds: there are no files.",
        f"**Inputs.** {inputs}. **Outputs.** One of {task.output_size:,} classes.",
        f"**Chance.** {chance.capitalize()}.",
    ]


def _options(kind: Any) -> list[str]:
    """Table of names, defaults and meanings of options; empty without options."""
    words = arguments(kind.__doc__ or "")
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(kind)}
    rows = [f"| `{name}` | `{default!r}` | {words[name]} |" for name, default in defaults.items()]
    # Tables need escaped bars, even in code.
    escaped = [re.sub(r"(?<=\S)\|(?=\S)", r"\\|", row) for row in rows]
    return ["\n".join(["| option | default | description |", "|---|---|---|", *escaped])] if rows else []


def _experiments(name: str) -> list[str]:
    """Commands of the experiments with a task."""
    names = [experiment for experiment in EXPERIMENTS.names() if name in _tasks_of(EXPERIMENTS.load(experiment))]
    return ["\n".join(f"    fastweights reproduce {experiment}" for experiment in names)] if names else []


def _tasks_of(experiment: Any) -> set[str]:
    return {experiment.trial(m, c, "cpu").task for m, c in experiment.presets["cpu"].places}
