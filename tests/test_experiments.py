"""Experiments: one command each, with interruption, shared folders, damaged runs, repetition and reports."""

import contextlib
import html
import json
import math
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from fastweights import InputError, cli
from fastweights.core.sealed_json import read_sealed, write_sealed, write_sealed_lines
from fastweights.core.tensor_file import read_tensor_file
from fastweights.experiments import run_trial
from fastweights.experiments.claim import Evidence, Verdict
from fastweights.experiments.experiment import Published, Trial
from fastweights.experiments.job import Job
from fastweights.experiments.plan import make_plan
from fastweights.experiments.status import status, table_of
from fastweights.experiments.trial import loop_of, make_task
from fastweights.experiments.workers import SlurmJob
from fastweights.models.retrieval_model import RetrievalModel
from fastweights.registry import EXPERIMENTS, MODELS, TASKS
from fastweights.report.document import Bullets, Grid, to_html, to_markdown
from fastweights.report.page import write_report
from fastweights.report.runs import collect
from fastweights.tasks import Labelled, MissingFile
from fastweights.tasks.kinds.environment import Environment
from fastweights.tasks.kinds.stream import Stream
from fastweights.training.distributed.hardware import make_fabric
from fastweights.training.loops.supervised import finish, train
from fastweights.training.run_folder.progress_state import Progress
from fastweights.training.run_folder.run import Run
from fastweights.training.session import Session
from fastweights.training.settings.actor_critic import ActorCritic
from fastweights.training.settings.language_modelling import LanguageModelling
from fastweights.training.settings.supervised import Supervised
from fastweights.training.settings.translation import Translation
from tiers import in_tiers

RETRIEVAL = "schlag2021/figure-2"
SLOW = "state-tracking/groups"


pytestmark = pytest.mark.usefixtures("real_data")


def reproduce(name, folder, *flags):
    return cli.main(["reproduce", name, "--preset", "smoke", "--runs-dir", str(folder), *flags])


def start(name, folder, *flags):
    """The command in a separate process and process group."""
    flags = ["--preset", "smoke", "--runs-dir", str(folder), *flags]
    command = [sys.executable, "-m", "fastweights.cli", "reproduce", name, *flags]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two models of one experiment, with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    assert reproduce(RETRIEVAL, folder, "--models", "softmax", "dpfp-1", "--seeds", "2") == 0
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of these runs, for a test to damage."""
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def run_of(folder, model="dpfp-1", seed=1):
    return Run(folder / RETRIEVAL / "smoke" / model / "20" / f"seed-{seed}")


@pytest.fixture(scope="session")
def experiments_folder(shared_folder):
    """The folder of all experiments: runs that several of them share are trained once."""
    return shared_folder / "experiments"


def combinations(name):
    """The loops, kinds of tasks and models of the smoke runs of an experiment."""
    experiment = EXPERIMENTS.load(name)
    preset = experiment.preset("smoke")
    trials = [experiment.trial(model, preset.columns[0], "smoke") for model in preset.models]
    return {(type(trial.training), TASKS.load(trial.task).kind(), trial.model) for trial in trials}


@pytest.mark.parametrize("name", in_tiers({name: combinations(name) for name in EXPERIMENTS.names()}))
def test_every_experiment_runs_and_reports(name, experiments_folder, capsys):
    experiment = EXPERIMENTS.load(name)
    preset = experiment.preset("smoke")
    for model in preset.models:
        trial = experiment.trial(model, preset.columns[0], "smoke")
        try:
            task = make_task(trial.task, trial.task_options)
            task.facts()
            if isinstance(task, Labelled):
                next(task.test(1))
            elif isinstance(task, Environment):
                task.make_envs(task.env_multiple, 0).close()
            elif isinstance(task, Stream):
                len(task.unseen)
        except MissingFile as missing:
            pytest.skip(str(missing))
    code, output = reproduce(name, experiments_folder), capsys.readouterr()
    assert code == 0, output
    runs = len(preset.places)
    assert all(f"{n} of {runs}: " in output.out for n in range(1, runs + 1))
    page = (experiments_folder / name / "smoke" / "report.html").read_text(encoding="utf-8")
    for model in preset.models:
        assert experiment.models[model].replace("&", "&amp;") in page
    assert "not counted" not in page


@pytest.fixture(scope="module")
def search_runs(tmp_path_factory):
    """Learning rates of two models, one rate of each being that of the table."""
    folder = tmp_path_factory.mktemp("searched")
    assert reproduce("ba2016/rates", folder, "--models", "lstm", "irnn") == 0
    return folder


@pytest.mark.parametrize("damaged", [False, True])
def test_runs_of_another_table_are_reused(damaged, search_runs, tmp_path, monkeypatch):
    folder, trained_runs = tmp_path / "runs", []
    shutil.copytree(search_runs, folder)
    searched_run = folder / "ba2016" / "rates" / "smoke" / "lstm" / "0.001" / "seed-1"
    if damaged:
        (searched_run / "metrics.jsonl").write_text("")
    train = run_trial.run_trial
    monkeypatch.setattr(
        run_trial, "run_trial", lambda run, *rest, **options: trained_runs.append(run) or train(run, *rest, **options)
    )
    flags = ["--models", "lstm", "irnn", "--columns", "20"]
    assert reproduce("ba2016/table-1", folder, *flags, "--seeds", "2") == 0
    table = folder / "ba2016" / "table-1" / "smoke"
    reused = {table / model / "20" / "seed-1" for model in (("irnn",) if damaged else ("irnn", "lstm"))}
    assert {run.path for run in trained_runs} == {path.parent for path in table.rglob("result.json")} - reused
    if not damaged:
        run = Run(table / "lstm" / "20" / "seed-1")
        assert (run.config()["recipe"], run.metrics()) == ("ba2016/table-1", Run(searched_run).metrics())
        assert run.config()["environment"] == Run(searched_run).config()["environment"]
        assert (run.path / "best.safetensors").read_bytes() == (searched_run / "best.safetensors").read_bytes()
    assert "not counted" not in (table / "report.html").read_text(encoding="utf-8")


def test_seeds_hold_out_successive_folds():
    experiment = EXPERIMENTS.load("ba2016/table-3")
    jobs = [Job("ba2016/table-3", "cpu", "lstm", "pose", seed) for seed in (1, 2, 3)]
    trials = [job.trial(experiment) for job in jobs]
    assert [(trial.training.seed, trial.task_options["fold"]) for trial in trials] == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_recipe_is_consistent(name):
    experiment = EXPERIMENTS.load(name)
    assert {"smoke", "cpu"} <= set(experiment.presets) <= {"smoke", "cpu", "long", "paper", "sanity", "others"}
    for key, preset in experiment.presets.items():
        assert preset.skip <= {(m, c) for m in preset.models for c in preset.columns}
        for model, column in preset.places:
            assert model in experiment.models
            trial = experiment.trial(model, column, key)
            restored = Trial.read(json.loads(json.dumps(trial.written())))
            assert (type(restored.training), json.dumps(restored.facts())) == (
                type(trial.training),
                json.dumps(trial.facts()),
            )
            assert trial.task in TASKS.names()
            assert trial.model in MODELS.names()
            metric = TASKS.load(trial.task)(**trial.task_options).main_metric.shown(experiment.display)
            assert experiment.display.form == "plain" or not metric.low_is_good, "the metric is no fraction"
            assert loop_of(trial).train
    for (model, column), number in experiment.published.items():
        assert model in experiment.models
        assert column in experiment.columns
        assert isinstance(number, Published)
    known_places = {
        *product(experiment.models, [*experiment.columns, *experiment.details]),
        *product(BASELINES, experiment.columns),
    }
    for claim in experiment.claims:
        assert claim.places <= known_places, claim.sentence
        assert claim.verdict(Evidence({}, {}, True)) == Verdict.NOT_TESTED
        assert claim.at_least is None or 0 < claim.at_least <= len(claim.parts)
    assert experiment.published_details.keys() <= {(m, name) for m in experiment.models for name in experiment.details}
    assert experiment.published or experiment.claims or experiment.display.data == "validation", "no results to report"


BASELINES = ("random actions", "a constant action")
"""Names in claims other than models."""

PUBLISHED_SIZES = {
    "face-glimpses": lambda task: ("features", task.input_size, 10),
    "wikitext-103": lambda task: (267_735,),
}
"""Arguments of models that otherwise need large files or files that are not available."""


ARGUMENTS = {}
"""Arguments of the models of a task. They need the data of the task, which several experiments share."""


def arguments_of(trial):
    """The arguments of the model of a trial."""
    task = TASKS.load(trial.task)(**trial.task_options)
    if repr(task) not in ARGUMENTS:
        ARGUMENTS[repr(task)] = PUBLISHED_SIZES.get(trial.task, lambda task: task.arguments)(task)
    return ARGUMENTS[repr(task)]


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_models_of_the_paper_preset_can_be_built(name):
    experiment = EXPERIMENTS.load(name)
    preset = experiment.presets.get("paper", experiment.presets["cpu"])
    first = dict(reversed(preset.places))
    for model, column in first.items():
        trial = experiment.trial(model, column, "paper" if "paper" in experiment.presets else "cpu")
        try:
            arguments = arguments_of(trial)
        except MissingFile as missing:
            pytest.skip(str(missing))
        with torch.device("meta"):
            assert MODELS.load(trial.model)(*arguments, **trial.model_options)


def test_numbers_of_parameters_equal_the_paper():
    """The numbers of parameters for 3 variables: 3.17, 3.18, 3.72 and 3.23 million."""
    experiment, counts = EXPERIMENTS.load("irie2021/table-2"), {}
    for model in ("linear", "delta-net", "delta-rnn", "recurrent-delta-net"):
        options = experiment.trial(model, "code-3", "paper").model_options
        network = MODELS.load("block-model")("tokens", 22, 26, **options)
        counts[model] = round(sum(p.numel() for p in network.parameters()) / 1e6, 2)
    assert counts == {"linear": 3.17, "delta-net": 3.18, "delta-rnn": 3.72, "recurrent-delta-net": 3.23}


def test_finished_runs_are_not_repeated(copied, capsys):
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*.safetensors")}
    assert reproduce(RETRIEVAL, copied, "--models", "softmax", "dpfp-1", "--seeds", "2") == 0
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*.safetensors")} == before


def test_further_seeds_are_added_to_a_folder(copied):
    assert reproduce(RETRIEVAL, copied, "--models", "softmax", "--seeds", "3") == 0
    assert run_of(copied, "softmax", 3).result() is not None


def have_equal_results(one, other):
    files = ("last.safetensors", "best.safetensors")
    equal = all((one.path / file).read_bytes() == (other.path / file).read_bytes() for file in files)
    return equal and one.result().test == other.result().test


@pytest.mark.slow
def test_killed_run_resumes_bit_identically(tmp_path):
    models = ("--models", "recurrent-delta-net")
    assert reproduce(SLOW, tmp_path / "whole", *models) == 0
    run, whole = (
        Run(tmp_path / folder / SLOW / "smoke" / "recurrent-delta-net" / "parity" / "seed-1")
        for folder in ("killed", "whole")
    )
    process = start(SLOW, tmp_path / "killed", *models)
    wait_for(lambda: (run.path / "last.safetensors").exists())
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert reproduce(SLOW, tmp_path / "killed", *models) == 0
    assert have_equal_results(run, whole)


def error_output_of_stopped(folder, *flags):
    """The error output of a command that Ctrl-C stops during runs of many minutes."""
    process = start("ba2016/table-1", folder, "--preset", "cpu", "--models", "lstm", "irnn", "--columns", "20", *flags)
    wait_for(lambda: list(folder.rglob("progress.json")))
    # Like Ctrl-C in a terminal, the signal goes to all processes of the group.
    os.killpg(process.pid, signal.SIGINT)
    output, error = process.communicate(timeout=120)
    assert process.returncode == 130, output + error
    return error


@pytest.mark.slow
def test_stopped_command_leaves_a_checkpoint_and_names_the_remedy(tmp_path):
    assert "same command again" in error_output_of_stopped(tmp_path)
    (checkpoint,) = tmp_path.rglob("last.safetensors")
    assert 0 < read_tensor_file(checkpoint).facts["step"] < 20_000
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.slow
def test_stopped_jobs_leave_checkpoints(tmp_path):
    assert "same command again" in error_output_of_stopped(tmp_path, "--jobs", "2")
    assert list(tmp_path.rglob("last.safetensors"))
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.slow
@pytest.mark.parametrize("before_training", [True, False])
def test_jobs_end_with_their_command(tmp_path, before_training):
    """Even if it is killed: jobs close its output at once, and write a checkpoint during training."""
    process = start(
        "ba2016/table-1",
        tmp_path,
        "--preset",
        "cpu",
        "--models",
        "lstm",
        "--columns",
        "20",
        "--seeds",
        "1",
        "--jobs",
        "2",
    )
    wait_for(lambda: list(tmp_path.rglob("jobs/*.log" if before_training else "progress.json")))
    (log,) = tmp_path.rglob("jobs/*.log")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=5)
    wait_for(lambda: not descriptors_of(log))
    assert before_training or list(tmp_path.rglob("last.safetensors"))
    assert log.read_text() == ""


def descriptors_of(path):
    """The open file descriptors of a file."""
    descriptors = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if descriptor.readlink() == path:
                descriptors.append(descriptor)
    return descriptors


@pytest.mark.slow
def test_two_processes_share_a_folder(tmp_path):
    processes = [start(RETRIEVAL, tmp_path) for _ in range(2)]
    for process in processes:
        output, error = process.communicate(timeout=300)
        assert process.returncode == 0, output + error
    collection = collect(tmp_path)
    models = EXPERIMENTS.load(RETRIEVAL).preset("smoke").models
    assert sorted(record.key[2] for group in collection.groups for record in group.records) == sorted(models)
    for record in collection.groups[0].records:
        steps = [line["step"] for line in record.metrics]
        assert steps == sorted(set(steps)), "two processes trained one run"


@pytest.mark.slow
def test_several_jobs_share_the_runs(tmp_path):
    process = start(RETRIEVAL, tmp_path, "--jobs", "2", "--models", "softmax", "linear", "dpfp-1")
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, output + error
    assert len(collect(tmp_path).groups[0].records) == 3


@pytest.mark.slow
def test_slurm_job_is_restarted_at_its_time_limit(tmp_path):
    """Otherwise submitit raises an error within a step, and the run would count as failed."""
    pytest.importorskip("submitit")
    worker = SlurmJob(make_plan(RETRIEVAL, "smoke", tmp_path, ["dpfp-1"]))
    restarted = pickle.loads(pickle.dumps(worker)).checkpoint()
    restarted.result()
    assert run_of(tmp_path).result() is not None


def test_error_without_submitit_names_the_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert reproduce(RETRIEVAL, tmp_path, "--jobs", "2", "--cluster", "slurm") == 2
    assert "pip install 'fastweights[cluster]'" in capsys.readouterr().err


def test_failing_run_is_reported_and_stops_no_other(tmp_path, monkeypatch, capsys):
    path = tmp_path / RETRIEVAL / "smoke" / "softmax" / "20" / "seed-1"
    path.mkdir(parents=True)
    (path / "config.json").write_text("{")
    assert reproduce(RETRIEVAL, tmp_path, "--models", "softmax", "dpfp-1") == 1
    assert f"config.json must be JSON, got {path}" in " ".join(capsys.readouterr().out.split())
    assert run_of(tmp_path).result() is not None
    (path / "config.json").unlink()
    assert reproduce(RETRIEVAL, tmp_path, "--models", "softmax", "dpfp-1") == 0


@pytest.mark.parametrize(("seconds", "state"), [(0.01, "failed"), (1, "waiting")])
def test_failure_at_the_start_counts_though_file_times_are_rounded_down(tmp_path, seconds, state):
    plan = make_plan(RETRIEVAL, "smoke", tmp_path, ["dpfp-1"])
    failure, began = plan.jobs[0].run(tmp_path).path / "failure.txt", time.time()
    failure.parent.mkdir(parents=True)
    failure.write_text("a reason")
    os.utime(failure, (began - seconds, began - seconds))
    assert status(plan.jobs[0], plan, began).state == state


def test_runs_with_other_settings_are_not_overwritten(copied, capsys):
    config = run_of(copied).path / "config.json"
    content = read_sealed(config)
    content["config"]["trial"]["training"]["steps"] = 11
    write_sealed(config, content)
    (run_of(copied).path / "result.json").unlink()
    assert reproduce(RETRIEVAL, copied, "--models", "dpfp-1") == 1
    assert "a run with the same settings" in " ".join(capsys.readouterr().out.split())


def test_report_names_models_in_mixed_precision(copied, capsys):
    half = ["--models", "dpfp-1", "--precision", "bf16-mixed"]
    (run_of(copied).path / "result.json").unlink()
    assert reproduce(RETRIEVAL, copied, *half) == 1
    assert "a run with the same settings" in " ".join(capsys.readouterr().out.split())
    assert reproduce(RETRIEVAL, copied) == 0
    assert reproduce(RETRIEVAL, copied, *half, "--seeds", "3") == 0
    report = (copied / RETRIEVAL / "smoke" / "report.md").read_text(encoding="utf-8")
    assert "| precision | 32-true or bf16-mixed for DPFP-1; 32-true for the others |" in report
    assert cli.main(["evaluate", str(run_of(copied, seed=3).path)]) == 0


INVALID = {
    "name": (["reproduce", "ba2016/tabel-1"], "Did you mean 'ba2016/table-1'?"),
    "preset": (["reproduce", RETRIEVAL, "--preset", "smok"], "Did you mean 'smoke'?"),
    "preset that is not there": (["reproduce", "zoology/recall", "--preset", "paper"], "one of cpu, smoke"),
    "model": (["reproduce", RETRIEVAL, "--models", "softmx"], "Did you mean 'softmax'?"),
    "column": (["reproduce", RETRIEVAL, "--columns", "21"], "columns must be one of"),
    "what is left out": (
        ["reproduce", RETRIEVAL, "--models", "linear", "--columns", "400"],
        "models and columns of preset cpu",
    ),
    "seeds": (["reproduce", RETRIEVAL, "--seeds", "0"], "seeds must be from 1 to 1,000"),
    "jobs": (["reproduce", RETRIEVAL, "--jobs", "0"], "jobs must be at least 1"),
    "folder": (["report", "/no/such/folder"], "folder must be a folder"),
    "empty folder": (["report", "."], "a folder with runs"),
}


@pytest.mark.parametrize(("arguments", "message"), INVALID.values(), ids=INVALID)
def test_invalid_input_gives_an_error_of_one_line_and_status_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert message in error
    assert not list(tmp_path.iterdir())


def test_help_lists_the_experiments(capsys):
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in EXPERIMENTS.names())


DAMAGES = {
    "truncated result": ("result.json", lambda content: content[:20]),
    "changed result": ("result.json", lambda content: content.replace(b"seconds", b"minutes")),
    "no config": ("config.json", lambda content: None),
    "no JSON": ("config.json", lambda content: b"\0"),
    "changed config": ("config.json", lambda content: content.replace(b'"seed": 1', b'"seed": 9')),
    "shorter metrics": ("metrics.jsonl", lambda content: b"".join(content.splitlines(keepends=True)[:-1])),
    "no metrics": ("metrics.jsonl", lambda content: None),
    "no UTF-8": ("metrics.jsonl", lambda content: b"\xff\n"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_run_is_reported_and_not_counted(copied, how, capsys):
    file, change = DAMAGES[how]
    path = run_of(copied).path / file
    changed = change(path.read_bytes())
    path.unlink() if changed is None else path.write_bytes(changed)
    assert cli.main(["report", str(copied)]) == 0
    page = (copied / "report.md").read_text(encoding="utf-8")
    assert re.search(f"not counted\n\n- .*dpfp-1/20/seed-1: damaged: {file} must be .*{path}", page), page
    assert "3 finished runs" in page


@pytest.mark.parametrize("how", ["no config", "no JSON", "shorter metrics", "no UTF-8"])
def test_reproduce_reports_a_damaged_run_and_continues(copied, how, capsys):
    """Damage beyond repair does not stop other runs; a damaged result is computed again (see below)."""
    file, change = DAMAGES[how]
    path = run_of(copied).path / file
    changed = change(path.read_bytes())
    path.unlink() if changed is None else path.write_bytes(changed)
    (run_of(copied, "softmax").path / "result.json").unlink()
    assert reproduce(RETRIEVAL, copied, "--models", "softmax", "dpfp-1") == 1
    assert f"{file} must be " in " ".join(capsys.readouterr().out.split())
    assert run_of(copied, "softmax").result() is not None


CHANGED_CONTENTS = {
    "result of another kind": ("result.json", {"test": {"loss": "low"}}),
    "result without time": ("result.json", {"seconds": None}),
    "endless result": ("result.json", {"parameters": 10**400}),
    "result of words": ("result.json", {"test": {"loss": 1.0, "more": "words"}}),
    "recipe": ("config.json", {"recipe": "char-lm"}),
    "config": ("config.json", {"config": {}}),
    "environment": ("config.json", {"environment": []}),
}
CHANGED_CONFIG = {
    "model": "dpfp-9",
    "column": ["20"],
    "preset": 7,
    "seed": "1",
    "experiment": "../oz",
    "trial": {"task": []},
}


def assert_listed(folder):
    collection = collect(folder)
    assert [skipped.path for skipped in collection.skipped] == [run_of(folder).path]
    assert len(collection.groups[0].records) == 3
    page = write_report(collect(folder)).read_text(encoding="utf-8")
    assert "Runs that are not counted" in page
    assert "dpfp-1/20/seed-1" in page


@pytest.mark.parametrize("how", CHANGED_CONTENTS)
def test_run_with_invalid_contents_is_listed_and_not_counted(copied, how):
    file, change = CHANGED_CONTENTS[how]
    path = run_of(copied).path / file
    write_sealed(path, read_sealed(path) | change)
    assert_listed(copied)


@pytest.mark.parametrize("field", CHANGED_CONFIG)
def test_run_with_an_invalid_config_is_listed_and_not_counted(copied, field):
    path = run_of(copied).path / "config.json"
    content = read_sealed(path)
    write_sealed(path, content | {"config": content["config"] | {field: CHANGED_CONFIG[field]}})
    assert_listed(copied)


@pytest.mark.parametrize("line", [{"step": 1}, {"step": 1, "seconds": 0.1, "validation": {"loss": "low"}}, {}])
def test_run_with_invalid_metrics_is_listed_and_not_counted(copied, line):
    run = run_of(copied)
    result = run.result()
    write_sealed_lines(run.path / "metrics.jsonl", [line])
    run.write_result(result)
    assert_listed(copied)


def test_unfinished_run_is_listed_with_its_training_steps(copied):
    (run_of(copied).path / "result.json").unlink()
    (skipped,) = collect(copied).skipped
    assert re.fullmatch(r"not finished: \d+ training steps so far", skipped.reason)
    (run_of(copied).path / "last.safetensors").unlink()
    (skipped,) = collect(copied).skipped
    assert "last.safetensors must be present after" in skipped.reason


def test_copy_of_a_run_is_not_counted_twice(copied):
    shutil.copytree(run_of(copied).path, copied / "zz-copy")
    collection = collect(copied)
    assert len(collection.groups[0].records) == 4
    assert "the same run as" in collection.skipped[0].reason


def test_folder_name_may_be_invalid_utf_8(copied):
    shutil.copytree(run_of(copied).path, copied / os.fsdecode(b"caf\xe9"))
    page = write_report(collect(copied)).read_text(encoding="utf-8")
    assert "caf\\udce9" in page


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"test": 1}'])
def test_lost_result_is_computed_again_without_training(copied, content):
    run = run_of(copied)
    before = run.result()
    (run.path / "result.json").write_text(content)
    assert reproduce(RETRIEVAL, copied, "--models", "dpfp-1") == 0
    assert run.result() == before


class Reader(HTMLParser):
    """Checks that tags are balanced, and collects the resources that a page loads."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href") and value[0] != "#"]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_self_contained_and_complete(finished):
    page = write_report(collect(finished / RETRIEVAL / "smoke")).read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    assert len(reader.loads) == 3, "an axis, and learning curves over training steps and over minutes"
    assert all(load.startswith("data:image/svg+xml;base64,") for load in reader.loads), "the page loads a resource"
    assert "width=device-width" in page
    values = [run_of(finished, "softmax", seed).result().test["loss"] for seed in (1, 2)]
    mean = sum(values) / 2
    text = (finished / RETRIEVAL / "smoke" / "report.md").read_text(encoding="utf-8")
    assert re.search(rf"\| Softmax \| {mean:#.3g} ± [\d.e-]+ \(2\)( †)? \| ≤ 0.001 \|", text)
    for part in (
        "Not tested",
        "does not have",
        "learning rate",
        "processor",
        "Training time of all runs",
        "preset paper",
    ):
        assert part in text
        assert part in page
    for figure in re.findall(r"\]\((figures/.*?)\)", text):
        assert (finished / RETRIEVAL / "smoke" / figure).is_file()


def test_report_of_a_search_names_the_best_columns(tmp_path):
    assert reproduce("ba2016/rates", tmp_path, "--models", "lstm", "irnn") == 0
    (group,) = collect(tmp_path).groups
    text = (tmp_path / "ba2016" / "rates" / "smoke" / "report.md").read_text(encoding="utf-8")
    for model, label in group.models.items():
        best = min(group.columns, key=lambda column: group.results[model, column].mean)
        assert f"- {label}: {group.columns[best]}, the best of 2 columns." in text


FRAMES = """<script>
onload = () => document.body.append(JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {
  const page = frame.contentDocument, wide = page.querySelectorAll(".wide");
  return [page.documentElement.clientWidth, page.documentElement.scrollWidth, page.images.length, wide.length,
    [...page.images].filter(image => image.naturalWidth && image.clientWidth <= page.body.clientWidth).length,
    [...wide].filter(table => table.clientWidth <= page.body.clientWidth).length]
})))
</script>"""


def test_report_fits_narrow_and_wide_screens(finished, tmp_path):
    """In a browser: the page has no horizontal overflow and shows every image."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    page = html.escape(write_report(collect(finished / RETRIEVAL / "smoke")).read_text(encoding="utf-8"))
    frames = [f'<iframe srcdoc="{page}" style="border: 0; width: {width}px"></iframe>' for width in (390, 1280)]
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><body>{''.join(frames)}{FRAMES}", encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += [f"--user-data-dir={tmp_path / 'browser'}", "--hide-scrollbars", "--dump-dom"]
    command = [browser, *flags, (tmp_path / "frames.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    measurements = json.loads(re.findall(r"\[\[[\d,\[\]]+\]\]", dom)[-1])
    for width, (client, scroll, images, tables, images_inside, tables_inside) in zip(
        (390, 1280), measurements, strict=True
    ):
        assert (client, scroll) == (width, width), "the page overflows the screen"
        assert images_inside == images >= 2
        assert tables_inside == tables >= 4


def test_report_is_reproducible(finished):
    folder = finished / RETRIEVAL / "smoke"
    pages = [write_report(collect(folder)).read_bytes() for _ in range(2)]
    assert pages[0] == pages[1]


def test_text_of_a_document_is_escaped():
    blocks = [Bullets(["a < b & c | d"]), Grid(["x|y"], [["<b>"]])]
    assert "<b>" not in to_html("t", blocks)
    assert "a &lt; b &amp; c" in to_html("t", blocks)
    assert "c \\| d" in to_markdown(blocks, "figures")
    assert "| `(?P<a>[^/_]+)\\|b` &lt;" in to_markdown([Grid(["x"], [["`(?P<a>[^/_]+)|b` <"]])], "figures")


def test_status_of_a_run(copied):
    plan = make_plan(RETRIEVAL, "smoke", copied, ["dpfp-1"])
    (job,) = plan.jobs
    assert status(job, plan, 0.0).state == "finished"
    (run_of(copied).path / "result.json").unlink()
    os.utime(run_of(copied).path / "progress.json")
    result = status(job, plan, 0.0)
    assert (result.state, result.step) == ("running", job.trial(plan.experiment).training.steps)
    assert result.value is not None
    os.utime(run_of(copied).path / "progress.json", (0, 0))
    assert status(job, plan, 0.0).state == "waiting"


def test_long_tables_show_running_jobs_only(tmp_path):
    plan = make_plan(RETRIEVAL, "paper", tmp_path)
    path = plan.jobs[0].run(tmp_path)
    path.path.mkdir(parents=True)
    path.show_progress(50, 10.0)
    table = table_of(plan, 0.0, rows=10)
    assert table.row_count == 1
    assert table.caption == f"0 finished, 0 failed, 1 running, {len(plan.jobs) - 1} waiting"
    assert list(table.columns[6].cells) == ["5:33:10"]


class Diverging(nn.Module):
    """A model whose outputs become NaN after some calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.bias = nn.Parameter(torch.zeros(6))

    def forward(self, inputs, answers):
        self.calls += 1
        outputs = torch.zeros(*inputs.shape, 6) + self.bias
        return outputs / 0 if self.calls > 12 else outputs


def test_training_stops_when_the_loss_is_nan(tmp_path):
    settings = Supervised(steps=1000, batch_size=4, learning_rate=0.1, evaluate_every=5)
    task, fabric = TASKS.load("state-tracking")(group="s3", evaluation_size=4), make_fabric(settings)
    train(Session(fabric, Diverging(), task, settings, Run(tmp_path)))
    result = finish(Session(fabric, Diverging(), task, settings, Run(tmp_path)))
    assert (result.stopped, result.steps, result.step) == ("diverged", 15, 5)


def test_training_stops_when_patience_is_exhausted(tmp_path):
    settings = Supervised(steps=1000, batch_size=4, learning_rate=1e-9, evaluate_every=1, patience=3)
    task = TASKS.load("state-tracking")(group="s3", evaluation_size=4)
    torch.manual_seed(0)
    model = MODELS.load("recurrent-model")("tokens", 6, 6, "lstm", 4)
    model.requires_grad_(False)
    model.head[-1].bias.requires_grad_(True)
    train(Session(make_fabric(settings), model, task, settings, Run(tmp_path)))
    losses = [line["validation"]["loss"] for line in Run(tmp_path).metrics()]
    assert len(losses) < 1000
    assert min(losses[-3:]) >= min(losses[:-3])


def test_test_curve_does_not_change_training(tmp_path):
    """Equal weights and equal validation, and in addition all metrics on test data."""
    task, lines, weights = TASKS.load("state-tracking")(group="s3", evaluation_size=8), {}, {}
    for curve in (False, True):
        settings = Supervised(steps=6, batch_size=4, learning_rate=0.01, evaluate_every=2, test_curve=curve)
        run = Run(tmp_path / str(curve))
        torch.manual_seed(0)
        model = MODELS.load("block-model")("tokens", 6, 6, "delta-net", 8, 1, 2, 8, dropout=0.5)
        train(Session(make_fabric(settings), model, task, settings, run))
        lines[curve] = [{name: v for name, v in line.items() if name != "seconds"} for line in run.metrics()]
        weights[curve] = read_tensor_file(run.path / "best.safetensors").tensors
    for plain, line in zip(lines[False], lines[True], strict=True):
        assert plain == {name: value for name, value in line.items() if name != "test"}
        assert all(0 <= line["test"][name] < math.inf for name in plain["validation"])
    assert all(map(torch.equal, weights[False].values(), weights[True].values()))


def test_learning_rate_is_constant_and_then_decays_linearly_to_0():
    settings = Supervised(steps=10, batch_size=4, learning_rate=0.5, decay=5, evaluate_every=1)
    rates = [settings.learning_rate_at(step) for step in range(10)]
    assert rates == pytest.approx([0.5] * 5 + [0.5, 0.4, 0.3, 0.2, 0.1])
    with pytest.raises(InputError, match="decay must be at most steps=10, got 11"):
        replace(settings, decay=11)


def test_learning_rate_schedules_have_their_warmup_and_decay():
    shared = {"batch_size": 4, "evaluate_every": 1, "learning_rate": 2.0}
    cosine = LanguageModelling(steps=10, window=4, warmup_steps=2, **shared)
    root = Translation(steps=16, warmup_steps=4, **shared)
    line = ActorCritic(steps=4, rollout_length=1, anneal=0.5, **shared)
    # The cosine reaches its peak, is halfway down after half of its steps, and ends at a tenth.
    assert [cosine.learning_rate_at(step) for step in (0, 1, 2, 6, 10)] == pytest.approx([1, 2, 2, 1.1, 0.2])
    assert [root.learning_rate_at(step) for step in (0, 3, 15)] == pytest.approx([0.5, 2, 1])
    assert [line.learning_rate_at(step) for step in range(5)] == pytest.approx([2, 1.75, 1.5, 1.25, 1])


def test_best_checkpoint_has_the_best_metric_and_then_the_lowest_loss():
    place = Progress()
    scores = [(-0.5, 1.0), (-0.5, 0.9), (-0.4, 0.1), (-0.6, 2.0), (float("nan"), 0.0)]
    assert [place.record_evaluation(score) for score in scores] == [True, True, False, True, False]


MEMORIES = [
    {"memory": "softmax-attention"},
    {"memory": "linear-attention", "feature_map": "elu"},
    {"memory": "linear-attention", "feature_map": "favor-8"},
    {"memory": "delta", "feature_map": "dpfp-1", "qk_norm": "sum"},
    {"memory": "fast-weight-memory", "feature_map": "tanh"},
]


@pytest.mark.parametrize("options", MEMORIES, ids=lambda options: "-".join(options.values()))
def test_queries_do_not_change_the_memory(options):
    task = TASKS.load("retrieval")(symbols=8, evaluation_size=3)
    model = RetrievalModel("pairs", 8, 8, **options).eval()
    inputs = next(task.validation(3)).inputs
    together = model(inputs, 8)
    alone = torch.cat([model(torch.cat([inputs[:, :8], inputs[:, 8 + n, None]], 1), 1) for n in range(8)], 1)
    torch.testing.assert_close(together, alone)


def test_retrieval_model_equals_the_delta_rule_of_the_paper():
    task = TASKS.load("retrieval")(symbols=5, setting="updates", evaluation_size=1)
    model = RetrievalModel("pairs", 5, 5, "delta", "dpfp-1", "sum", "sum-6", key_size=6).double().eval()
    (inputs,) = next(task.validation(1)).inputs
    W = torch.zeros(5, 12, dtype=torch.float64)
    for key, value in inputs[:5]:
        v = torch.eye(5, dtype=torch.float64)[value]
        x = torch.cat([v, model.embedding.weight[key]])
        k = model.keys(model.key(x))
        k = k / k.sum()
        W = W + model.rate(x).sigmoid() * torch.outer(v - W @ k, k)
    q = model.keys(model.query(model.embedding.weight[inputs[5:, 0]]))
    q = q / (q.sum(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(model(inputs[None], 5)[0], q @ W.T)


def test_retrieval_model_rejects_a_memory_with_decay():
    with pytest.raises(InputError, match="memory must be a cell without slow weights"):
        RetrievalModel("pairs", 5, 5, "gated-delta")
