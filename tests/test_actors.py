"""Agents with actors in separate processes: learning, and the death of a process."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fastweights import InputError
from fastweights.core.errors import ProcessDied
from fastweights.experiments.experiment import Trial
from fastweights.experiments.run_trial import run_trial
from fastweights.training.rl import actor as acting
from fastweights.training.rl.worker_pool import WorkerPool
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.actor_critic import ActorCritic

SETTINGS = ActorCritic(
    steps=8, batch_size=8, evaluate_every=4, rollout_length=5, learning_rate=1e-3, episodes=4, mode="impala"
)
SMALL = {"layer": "delta-net", "d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 8}
MODES_WITH_PROCESSES = ["impala", "hogwild"]


def trial(**changes):
    return Trial("t-maze", {"length": 3}, "agent", SMALL, replace(SETTINGS, **changes))


def begin(worker_id, replaced, kind):
    """A process that doubles numbers, or fails in one of several ways."""
    if kind == "dies first":
        os._exit(3)

    def double(number):
        if kind == "refuses":
            raise InputError("number must be even,\ngot an odd one.")
        if kind == "dies once" and number == 7 and not replaced:
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * number, replaced

    return double


@pytest.fixture
def make_pool():
    pools = []

    def make(kind, number=1):
        pools.append(WorkerPool(number, begin, (kind,)))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.mark.slow
def test_dead_process_is_reported_and_replaced(make_pool):
    pool = make_pool("dies once", 2)
    for worker_id in (0, 1):
        pool.send(worker_id, 1)
    assert {pool.receive([0, 1])[1] for _ in (0, 1)} == {(2, 0)}
    pool.send(1, 7)
    assert pool.receive([1]) == (1, (14, 1))
    assert pool.events == ["Actor 2 died (SIGKILL) after 1 rollouts and was replaced."]


def test_process_that_dies_before_any_work_ends_the_pool(make_pool):
    pool = make_pool("dies first")
    pool.processes[0].join()
    with pytest.raises(ProcessDied, match=r"Actor 1 died \(exit status 3\) before its first rollout"):
        pool.send(0, 1)


def test_error_of_a_process_is_raised_in_the_pool(make_pool):
    pool = make_pool("refuses")
    pool.send(0, 1)
    with pytest.raises(InputError, match="number must be even, got an odd one"):
        pool.receive([0])


@pytest.mark.slow
@pytest.mark.parametrize("way", MODES_WITH_PROCESSES)
def test_agents_with_actors_in_processes_learn(way, tmp_path):
    updates = {"impala": 80, "hogwild": 160}[way]
    chosen = {"mode": way, "batch_size": 64, "steps": updates, "evaluate_every": updates, "rollout_length": 16}
    larger = {**SMALL, "d_model": 16, "d_ff": 16}
    training = replace(SETTINGS, **chosen, learning_rate=3e-3, episodes=64)
    run_trial(Run(tmp_path), trial()._replace(model_options=larger, training=training), "test", {}, resume=False)
    assert Run(tmp_path).result().test["return"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("way", MODES_WITH_PROCESSES)
def test_run_continues_after_an_actor_dies(way, tmp_path, monkeypatch, capsys):
    learn, calls = acting.MODES[way].learn, []

    def kill(self):
        calls.append(self.pool)
        if len(calls) == 3:
            # The actor has completed work by then, and has more to do.
            worker_id = max(range(2), key=lambda n: self.pool.answers[n])
            os.kill(self.pool.processes[worker_id].pid, signal.SIGKILL)
        return learn(self)

    monkeypatch.setattr(acting.MODES[way], "learn", kill)
    run_trial(Run(tmp_path), trial(mode=way), "test", {}, resume=False, shown=True)
    assert Run(tmp_path).result().steps == 8
    output = capsys.readouterr().out
    assert "died (SIGKILL) after" in output
    assert "and was replaced" in output
    assert not any(process.is_alive() for process in calls[0].processes)


@pytest.mark.slow
def test_run_without_working_actors_stops_and_resumes(tmp_path, monkeypatch):
    """The pool starts no further process after one that ended before its first rollout."""
    make_actor = acting.make_actor
    monkeypatch.setattr(acting, "make_actor", exit_process)
    with pytest.raises(ProcessDied, match="before its first rollout, and the run stopped"):
        run_trial(Run(tmp_path), trial(), "test", {}, resume=False)
    monkeypatch.setattr(acting, "make_actor", make_actor)
    run_trial(Run(tmp_path), trial(), "test", {}, resume=True)
    assert Run(tmp_path).result().steps == 8


def exit_process(*_):
    os._exit(1)


PROGRAM = """
import os, signal, sys
from multiprocessing import active_children
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_actors import Run, acting, run_trial, trial

def die(self):
    calls.append(0)
    if len(calls) == 6:
        print(*(child.pid for child in active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return learn(self)

if __name__ == "__main__":
    way, calls = acting.MODES[{way!r}], []
    learn, way.learn = way.learn, die
    run_trial(Run(Path({folder!r})), trial(mode={way!r}), "test", {{}}, resume=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["synchronous", "impala"])
def test_killed_run_resumes_bit_identically_if_synchronous(way, tmp_path):
    """The process is killed between two evaluations. Its actors end by themselves."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tests=str(Path(__file__).parent), way=way, folder=str(killed)))
    # With the number of threads of this process, since sums of other parts are rounded differently.
    alike = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, env=alike)
    assert done.returncode == -signal.SIGKILL, done.stderr
    run_trial(Run(killed), trial(mode=way), "test", {}, resume=True)
    assert Run(killed).result().steps == 8
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in done.stdout.split()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in done.stdout.split() if Path(f"/proc/{pid}").exists()]
    if way == "synchronous":
        run_trial(Run(whole), trial(mode=way), "test", {}, resume=False)
        for name in ("last.safetensors", "best.safetensors"):
            assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "alone"}, "mode must be one of synchronous, impala, hogwild, got 'alone'"),
        ({"num_actors": 3}, "batch_size must be a multiple of 3, of all actors, got 8"),
        (
            {"mode": "hogwild", "gradient_accumulation_steps": 2},
            "devices, gradient_accumulation_steps, precision must be",
        ),
        ({"compile": True}, "compile must be False for actors in processes"),
        ({"environments": 6}, "environments must be 0, or at least 8 with mode='impala', got 6"),
        ({"mode": "hogwild", "environments": 12}, "environments must be 0, .* got 12 with mode='hogwild'"),
        ({"environments": 9}, "environments must be a multiple of 2, of all actors, got 9"),
    ],
)
def test_settings_that_actors_cannot_share_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SETTINGS, **changes)


def test_learner_uses_the_oldest_unrolls_first(tmp_path, monkeypatch):
    """Eight environments, six rollouts per update: the learner uses each rollout once, in the order of arrival."""
    arrived, used, take, make = [], [], acting.ImpalaActors._take, acting.ImpalaActors._rollout

    def record_arrivals(self):
        before = len(self.ready)
        take(self)
        arrived.extend(torch.cat([leaf.flatten() for leaf in row]) for row in self.ready[before:])

    def rollout(self, number):
        rows = [torch.cat([leaf.flatten() for leaf in row]) for row in self.ready[:number]]
        made = make(self, number)
        assert len(made.observation) == number == len(rows)
        used.extend(rows)
        return made

    monkeypatch.setattr(acting.ImpalaActors, "_take", record_arrivals)
    monkeypatch.setattr(acting.ImpalaActors, "_rollout", rollout)
    run_trial(Run(tmp_path), trial(batch_size=6, environments=8), "test", {}, resume=False)
    assert len(used) == 8 * 6
    assert all(torch.equal(one, other) for one, other in zip(used, arrived, strict=False))


def test_actors_never_read_weights_during_a_write():
    """Three copies of the weights; if the actors use all others, the newest copy stays the same."""
    learner = acting.ImpalaActors.__new__(acting.ImpalaActors)
    weights = torch.nn.Linear(1, 1)
    learner.copies, learner.newest = [torch.nn.Linear(1, 1) for _ in range(3)], 0
    learner.session, learner.pool = SimpleNamespace(bare=weights), SimpleNamespace(messages=[0, 1])
    learner._publish()
    assert learner.newest == 2
    assert torch.equal(learner.copies[2].weight, weights.weight)
    learner._publish()
    assert learner.newest == 2
    learner.pool.messages[0] = 2
    learner._publish()
    assert learner.newest == 0
