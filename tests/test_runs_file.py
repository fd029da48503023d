"""Files of finished runs: reports and `reproduce` use them like run folders, and damaged files are refused."""

import itertools
import json
import random
import shutil
import threading
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import pytest

from fastweights import InputError, cli
from fastweights.core.metric import LOSS
from fastweights.core.sealed_json import seal
from fastweights.experiments import run_trial
from fastweights.experiments.experiment import FREE
from fastweights.experiments.job import Job
from fastweights.experiments.reuse import without_hardware
from fastweights.registry import EXPERIMENTS
from fastweights.report.pack import pack
from fastweights.report.page import write_report
from fastweights.report.runs import collect
from fastweights.training.run_folder.rename_settings import rename_settings
from fastweights.training.run_folder.result import Result
from fastweights.training.run_folder.run import Run
from fastweights.training.run_folder.runs_file import RUNS, PackedRun, add_runs, read_runs, write_runs

NAME = "schlag2021/figure-2"
RESULTS = Path(__file__).parents[1] / "docs" / "results"
COMMITTED = sorted(RESULTS.rglob(RUNS))
PLACES = [("softmax", "20", 1), ("softmax", "20", 2), ("softmax", "20", 10), ("dpfp-1", "20", 1)]


def finish(folder, model, column, seed):
    """Finished run in the folder of `reproduce`."""
    job = Job(NAME, "smoke", model, column, seed)
    run, trial = job.run(folder), job.trial(EXPERIMENTS.load(NAME))
    run.begin(NAME, job.facts(trial), {"text": "\xe9\udc80\u2028"}, LOSS)
    for step in range(1, 5):
        losses = {"validation": {"loss": 1 / (step + seed)}, "train": {"loss": float("nan")}}
        run.log(step=step, **losses, seconds=0.1 * step)
    measured = {"validation": {"loss": 1 / (4 + seed)}, "test": {"loss": 0.1 * seed}}
    measured |= {"curves": {"length": [(1, 0.5), (2, 0.25)]}, "details": {"instance": {"1": 0.1, "2": 0.2}}}
    run.write_result(Result(step=4, steps=4, stopped="steps", seconds=0.4, parameters=7, **measured))
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for place in PLACES:
        finish(folder, *place)
    return folder


@pytest.fixture
def folders(finished, tmp_path):
    """Copy of the run folders."""
    return Path(shutil.copytree(finished, tmp_path / "runs"))


@pytest.fixture
def packed(folders):
    """The same runs in a file, without run folders."""
    (file,) = pack(collect(folders))
    for folder in file.parent.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    return folders


def file_in(folder):
    return folder / NAME / "smoke" / RUNS


def report_of(folder):
    write_report(collect(folder))
    pictures = {path.name: path.read_bytes() for path in (folder / "figures").iterdir()}
    return (folder / "report.md").read_bytes(), pictures


def test_a_packed_run_equals_its_run_folder(folders):
    pack(collect(folders))
    runs = read_runs(file_in(folders))
    assert [run.path.name for run in runs] == ["seed-1", "seed-1", "seed-2", "seed-10"]
    for run in runs:
        folder = Run(run.path)
        assert (run.config(), run.result()) == (folder.config(), folder.result())
        assert repr(run.metrics()) == repr(folder.metrics())


def test_reports_of_packed_runs_and_run_folders_are_identical(folders, packed, finished, tmp_path):
    whole = Path(shutil.copytree(finished, tmp_path / "whole"))
    assert not list(packed.rglob("config.json"))
    assert report_of(packed) == report_of(whole)


def test_packing_again_keeps_runs_without_a_folder(packed):
    before = file_in(packed).read_bytes()
    finish(packed, "dpfp-1", "20", 2)
    pack(collect(packed))
    after = file_in(packed).read_bytes()
    assert set(before.splitlines()) < set(after.splitlines())
    assert len(after.splitlines()) == len(PLACES) + 1
    pack(collect(packed))
    assert file_in(packed).read_bytes() == after


def test_the_command_packs_and_keeps_run_folders(folders, capsys):
    before = {path for path in folders.rglob("*") if path.is_file()}
    assert cli.main(["report", str(folders), "--pack"]) == 0
    assert f"Runs are packed in {file_in(folders)}." in capsys.readouterr().out
    assert before < {path for path in folders.rglob("*") if path.is_file()}
    assert "4 finished runs" in (folders / "report.md").read_text(encoding="utf-8")
    assert "not counted" not in (folders / "report.md").read_text(encoding="utf-8")


def test_runs_outside_of_an_experiment_are_packed_next_to_the_report(folders, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folders / NAME / "smoke" / "softmax" / "20" / "seed-1", other / "mine")
    assert pack(collect(other)) == [other / RUNS]
    (run,) = read_runs(other / RUNS)
    assert run.path == other / "mine"


@pytest.mark.usefixtures("real_data")
def test_reproduce_trains_no_packed_run_and_adds_missing_ones(packed, monkeypatch):
    trained, train = [], run_trial.run_trial
    monkeypatch.setattr(
        run_trial, "run_trial", lambda run, *rest, **options: trained.append(run.path) or train(run, *rest, **options)
    )
    flags = [
        "reproduce",
        NAME,
        "--preset",
        "smoke",
        "--runs-dir",
        str(packed),
        "--models",
        "softmax",
        "--columns",
        "20",
    ]
    assert cli.main([*flags, "--seeds", "3"]) == 0
    assert trained == [Job(NAME, "smoke", "softmax", "20", 3).run(packed).path]
    assert "5 finished runs" in (packed / NAME / "smoke" / "report.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("real_data")
def test_reproduce_copies_a_packed_run_of_another_table(packed, tmp_path):
    """The run of the other experiment is in a packed file too."""
    other = tmp_path / "other"
    (run, *_) = read_runs(file_in(packed))
    content = json.loads(json.dumps(run.content))
    content["recipe"] = content["config"]["experiment"] = "schlag2021/figure-4"
    add_runs(other / RUNS, [PackedRun(other / run.content["folder"], content)])
    trial = {"reproduce": NAME, "--models": "dpfp-1", "--columns": "20"}
    flags = [part for pair in trial.items() for part in pair]
    assert cli.main([*flags, "--preset", "smoke", "--runs-dir", str(other)]) == 0
    copy = Job(NAME, "smoke", "dpfp-1", "20", 1).run(other)
    assert copy.result() == run.result()
    assert repr(copy.metrics()) == repr(run.metrics())
    assert copy.config() == run.config()


def test_a_command_that_needs_weights_names_the_file_of_the_run(packed, capsys):
    run = Job(NAME, "smoke", *PLACES[0]).run(packed).path
    assert cli.main(["evaluate", str(run)]) != 0
    assert f"{file_in(packed)} has its settings and its result, but no weights." in capsys.readouterr().err


# Damage


def damages(content):
    """Content with flipped bits, cuts, and missing, duplicated or exchanged lines, and other content."""
    places = random.Random(0).sample(range(len(content)), 300)
    for place in (*places, len(content) - 1):
        yield content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
    yield from (content[:place] for place in places[:50])
    yield from (content[:place] + b"\0" * (len(content) - place) for place in places[:20])
    lines = content.splitlines(keepends=True)
    for left, right in itertools.combinations_with_replacement(range(len(lines)), 2):
        exchanged = list(lines)
        exchanged[left], exchanged[right] = lines[right], lines[left]
        yield b"".join(exchanged)
        yield b"".join(lines[:left] + lines[right + 1 :])
    yield from (b"\n", b"{}", b"[]\n", b"\0", content + content, content + b"\n{}", content + b"{}\n", b"[" * 9999)


def test_damage_is_refused_in_one_line_or_changes_no_run(packed):
    """Missing lines are missing runs, like deleted run folders."""
    path = file_in(packed)
    content, whole = path.read_bytes(), {repr(run.content) for run in read_runs(path)}
    messages = []
    for damaged in damages(content):
        path.write_bytes(damaged)
        messages.append("")
        try:
            assert {repr(run.content) for run in read_runs(path)} <= whole
        except InputError as error:
            messages[-1] = str(error)
    noticed = [message for message in messages if message]
    assert all(RUNS in message and len(message.splitlines()) == 1 for message in noticed)
    assert len(noticed) > 0.8 * len(messages)


def test_a_damaged_file_is_named_in_a_report_and_stops_reproduce(packed, capsys):
    path = file_in(packed)
    finish(packed, "dpfp-1", "20", 2)
    path.write_bytes(path.read_bytes()[:-10])
    assert cli.main(["report", str(packed)]) == 0
    page = (packed / "report.md").read_text(encoding="utf-8")
    assert "1 finished run." in page
    assert f"not counted\n\n- {NAME}/smoke/{RUNS}: damaged: {RUNS} must be" in page
    assert cli.main(["reproduce", NAME, "--preset", "smoke", "--runs-dir", str(packed)]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}, which is cut off" in line


MEASURED = {"step": 1, "steps": 1, "stopped": "", "seconds": 0.0, "parameters": 1, "validation": {}, "test": {}}
HOSTILE = {
    "a folder outside": {"folder": "../../etc"},
    "an absolute folder": {"folder": "/etc"},
    "no folder": {"folder": None},
    "metrics of another kind": {"metrics": {"loss": 1.0}},
    "metrics of words": {"metrics": ["loss"]},
    "a result of words": {"result": "best"},
    "an unknown part of a result": {"result": {"better": 1}},
    "details of another kind": {"result": {**MEASURED, "details": {"instance": 1.0}}},
    "curves of another kind": {"result": {**MEASURED, "curves": {"length": [1.0, 2.0]}}},
    "no config": {"config": None},
    "a recipe of another kind": {"recipe": 5},
}


@pytest.mark.parametrize("content", HOSTILE)
def test_a_sealed_line_with_other_content_is_refused(content, packed):
    path = file_in(packed)
    first, *_ = read_runs(path)
    path.write_text(json.dumps(seal({**first.content, **HOSTILE[content]})) + "\n")
    with pytest.raises(InputError, match="line 1"):
        read_runs(path)


def test_a_run_of_another_metric_than_the_others_is_not_counted(packed):
    path = file_in(packed)
    *others, last = read_runs(path)
    write_runs(
        path, [*others, PackedRun(last.path, {**last.content, "metric": {"name": "loss", "low_is_good": False}})]
    )
    collection = collect(packed)
    (group,) = collection.groups
    assert len(group.records) == len(others)
    (skipped,) = collection.skipped
    assert skipped.reason == "its metric loss is not that of other runs, or has another direction"


# Several processes


def test_many_writers_lose_no_run(finished, folders):
    runs = [Job(NAME, "smoke", *place).run(folders) for place in PLACES]
    threads = [threading.Thread(target=add_runs, args=(file_in(folders), [run])) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {run.path for run in read_runs(file_in(folders))} == {run.path for run in runs}


def test_the_result_of_a_packed_run_has_all_its_parts(packed):
    for run in read_runs(file_in(packed)):
        assert json.loads(json.dumps(asdict(run.result()))) == run.content["result"]


# Renamed settings


def values_of(value):
    """All scalar values, in order."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in values_of(part)]
    return [leaf for part in value for leaf in values_of(part)] if isinstance(value, list) else [value]


def names_of(value):
    """All names of an object, at any depth."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {*(value if isinstance(value, dict) else ()), *(name for part in parts for name in names_of(part))}


RENAMES = {"task_options": {"depth": "nesting"}, "model_options": {"num_layers": "blocks", "num_heads": "readers"}}


@pytest.mark.parametrize("file", COMMITTED, ids=lambda path: str(path.parent.relative_to(RESULTS)))
def test_renaming_settings_changes_names_of_one_part_only(file, tmp_path):
    copy = Path(shutil.copy(file, tmp_path / RUNS))
    rename_settings(copy, RENAMES)
    runs, changed = read_runs(file), read_runs(copy)
    assert repr([values_of(run.content) for run in runs]) == repr([values_of(run.content) for run in changed])
    for old, new in zip(runs, changed, strict=True):
        before, after = old.content["config"]["trial"], new.content["config"]["trial"]
        for part in ("task_options", "model_options"):
            expected = {RENAMES[part].get(name, name) for name in names_of(before[part])}
            assert names_of(after[part]) == expected
        assert after["training"] == before["training"]


def test_renaming_back_gives_the_same_bytes(packed):
    before = file_in(packed).read_bytes()
    rename_settings(file_in(packed), {"training": {"max_grad_norm": "largest"}})
    assert b"largest" in file_in(packed).read_bytes()
    rename_settings(file_in(packed), {"training": {"largest": "max_grad_norm"}})
    assert file_in(packed).read_bytes() == before


def test_renaming_to_an_existing_name_is_refused(packed):
    before = file_in(packed).read_bytes()
    with pytest.raises(InputError, match="renames must be names that the runs do not have"):
        rename_settings(file_in(packed), {"training": {"max_grad_norm": "steps"}})
    assert file_in(packed).read_bytes() == before


PARTS = ("experiment", "preset", "model", "column", "seed")

REPLACED = {
    "ba2016/table-1": "an IRNN with 100 units that is not cut off",
    "gregor2020/figure-1": "synapses that pass on the hidden half of an LSTM only",
    "irie2021/table-1": "training streams that are longer than the evaluated text",
    "irie2022/figure-4": "heads of 16 and normalised features",
    "irie2022/table-1": "heads of 16 and normalised features",
    "irie2022/table-2": "heads of 16 and normalised features",
    "schlag2021/table-4": "training streams that are longer than the evaluated text",
}
"""Experiments whose committed runs have older settings, with the change of the new runs that will replace them."""


def committed():
    """Settings of all committed runs, by the name of the experiment."""
    runs = {}
    for run in chain.from_iterable(map(read_runs, sorted(RESULTS.rglob(RUNS)))):
        config = run.config()["config"]
        if config["preset"] != FREE:
            runs.setdefault(config["experiment"], []).append(config)
    return runs


COMMITTED_RESULTS = committed()


def is_current(config):
    """Whether the current preset has a run with these settings."""
    experiment = EXPERIMENTS.load(config["experiment"])
    if (config["model"], config["column"]) not in experiment.preset(config["preset"]).places:
        return False
    job = Job(*(config[part] for part in PARTS))
    return without_hardware(config)["trial"] == without_hardware(job.facts(job.trial(experiment)))["trial"]


@pytest.mark.parametrize("name", COMMITTED_RESULTS)
def test_committed_runs_have_the_settings_of_their_recipe(name):
    other = [tuple(config[part] for part in PARTS[1:]) for config in COMMITTED_RESULTS[name] if not is_current(config)]
    assert bool(other) == (name in REPLACED), other
