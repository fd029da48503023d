"""Packing of finished runs into files of runs, one per experiment and preset."""

from pathlib import Path

from fastweights.report.runs import Collection, Record
from fastweights.training.run_folder.run import Run
from fastweights.training.run_folder.runs_file import RUNS, add_runs


def pack(collection: Collection) -> list[Path]:
    """Adds all finished run folders of a collection to files of runs, and returns the files.

    Run folders do not change. The file is in the folder in which `reproduce` puts an experiment and a preset; for run
    folders elsewhere, in the folder of the collection.
    """
    runs_of: dict[Path, list[Run]] = {}
    for record in (record for group in collection.groups for record in group.records):
        if isinstance(record.run, Run):
            runs_of.setdefault(_parent(record, collection.folder), []).append(record.run)
    for parent, runs in runs_of.items():
        add_runs(parent / RUNS, runs)
    return [parent / RUNS for parent in runs_of]


def _parent(record: Record, folder: Path) -> Path:
    experiment, preset, model, column, seed = record.key
    inner = Path(model, column, f"seed-{seed}").parts
    place = (*Path(experiment, preset).parts, *inner)
    return record.path.parents[len(inner) - 1] if record.path.parts[-len(place) :] == place else folder
