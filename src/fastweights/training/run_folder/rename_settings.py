"""New names for settings in a file of runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastweights.core.errors import require
from fastweights.training.run_folder.runs_file import PackedRun, read_runs, write_runs

Names = Mapping[str, str]
"""New names by old names."""


def rename_settings(path: Path, renames: Mapping[str, Names]) -> None:
    """Renames settings in all runs of a file, and seals the lines again. No value changes.

        rename_settings(path, {"model_options": {"heads": "num_heads"}, "training": {"clip": "max_grad_norm"}})

    Args:
        path: File of runs.
        renames: New names by old names, for each part of a trial: `task_options`, `model_options` or `training`. Names
            are also replaced in objects inside these parts.

    Raises:
        InputError: The file is damaged, or a run has a setting under its old name and under its new name.
    """
    write_runs(path, [PackedRun(run.path, _renamed_run(run.content, renames)) for run in read_runs(path)])


def _renamed_run(content: dict[str, Any], renames: Mapping[str, Names]) -> dict[str, Any]:
    trial = content["config"]["trial"]
    changed = {part: _renamed(trial[part], names) for part, names in renames.items() if part in trial}
    return {**content, "config": {**content["config"], "trial": {**trial, **changed}}}


def _renamed(value: Any, names: Names) -> Any:
    """A value with new names in all its objects, in the same order."""
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    if not isinstance(value, dict):
        return value
    changed = {names.get(name, name): _renamed(part, names) for name, part in value.items()}
    twice = ", ".join(name for name in value if name in names and names[name] in value)
    require(not twice, "renames", "names that the runs do not have", f"another name for {twice}")
    return changed
