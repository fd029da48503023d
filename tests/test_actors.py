"""Agents that act in processes of their own: what they learn, and what happens where one dies."""

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
from fastweights.experiments.run_trial import carry_out
from fastweights.training.rl import actor as acting
from fastweights.training.rl.worker_pool import WorkerPool
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.actor_critic import ActorCritic

SETTINGS = ActorCritic(
    steps=8, batch_size=8, evaluate_every=4, unroll_length=5, learning_rate=1e-3, episodes=4, mode="impala"
)
SMALL = {"layer": "delta-net", "d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 8}
APART = ["impala", "hogwild"]


def trial(**changes):
    return Trial("t-maze", {"length": 3}, "agent", SMALL, replace(SETTINGS, **changes))


def begin(seat, hired, kind):
    """A process that doubles numbers, in one of several ways."""
    if kind == "stillborn":
        os._exit(3)

    def double(number):
        if kind == "refuses":
            raise InputError("number must be even,\ngot an odd one.")
        if kind == "dies once" and number == 7 and not hired:
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * number, hired

    return double


@pytest.fixture
def crew_of():
    made = []

    def make(kind, number=1):
        made.append(WorkerPool(number, begin, (kind,)))
        return made[-1]

    yield make
    for crew in made:
        crew.close()


def test_a_process_that_dies_is_named_and_its_work_is_done_by_another(crew_of):
    crew = crew_of("dies once", 2)
    for seat in (0, 1):
        crew.tell(seat, 1)
    assert {crew.hear([0, 1])[1] for _ in (0, 1)} == {(2, 0)}
    crew.tell(1, 7)
    assert crew.hear([1]) == (1, (14, 1))
    assert crew.news == ["Actor 2 died (SIGKILL) after 1 rollouts and was replaced."]


def test_a_process_that_dies_before_it_has_done_anything_ends_it_all(crew_of):
    crew = crew_of("stillborn")
    crew.processes[0].join()
    with pytest.raises(ProcessDied, match=r"Actor 1 died \(exit status 3\) before its first rollout"):
        crew.tell(0, 1)


def test_what_a_process_refuses_is_said_here(crew_of):
    crew = crew_of("refuses")
    crew.tell(0, 1)
    with pytest.raises(InputError, match="number must be even, got an odd one"):
        crew.hear([0])


@pytest.mark.slow
@pytest.mark.parametrize("way", APART)
def test_agents_learn_what_they_did_apart(way, tmp_path):
    updates = {"impala": 80, "hogwild": 160}[way]
    chosen = {"mode": way, "batch_size": 64, "steps": updates, "evaluate_every": updates, "unroll_length": 16}
    larger = {**SMALL, "d_model": 16, "d_ff": 16}
    training = replace(SETTINGS, **chosen, learning_rate=3e-3, episodes=64)
    carry_out(Run(tmp_path), trial()._replace(model_options=larger, training=training), "test", {}, resume=False)
    assert Run(tmp_path).result().test["return"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("way", APART)
def test_a_run_goes_on_where_an_actor_dies(way, tmp_path, monkeypatch, capsys):
    learn, calls = acting.MODES[way].learn, []

    def kill(self):
        calls.append(self.pool)
        if len(calls) == 3:
            # It has done something by then, and has more to do.
            seat = max(range(2), key=lambda n: self.pool.answers[n])
            os.kill(self.pool.processes[seat].pid, signal.SIGKILL)
        return learn(self)

    monkeypatch.setattr(acting.MODES[way], "learn", kill)
    carry_out(Run(tmp_path), trial(mode=way), "test", {}, resume=False, shown=True)
    assert Run(tmp_path).result().steps == 8
    told = capsys.readouterr().out
    assert "died (SIGKILL) after" in told
    assert "and was replaced" in told
    assert not any(process.is_alive() for process in calls[0].processes)


@pytest.mark.slow
def test_a_run_that_no_actor_can_begin_stops_and_can_go_on(tmp_path, monkeypatch):
    """As where the environment takes a process down: nobody is hired again and again."""
    begun = acting.begin_acting
    monkeypatch.setattr(acting, "begin_acting", gone)
    with pytest.raises(ProcessDied, match="before its first rollout, and the run stopped"):
        carry_out(Run(tmp_path), trial(), "test", {}, resume=False)
    monkeypatch.setattr(acting, "begin_acting", begun)
    carry_out(Run(tmp_path), trial(), "test", {}, resume=True)
    assert Run(tmp_path).result().steps == 8


def gone(*_):
    os._exit(1)


PROGRAM = """
import os, signal, sys
from multiprocessing import active_children
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_actors import Run, acting, carry_out, trial

def die(self):
    calls.append(0)
    if len(calls) == 6:
        print(*(child.pid for child in active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return learn(self)

if __name__ == "__main__":
    way, calls = acting.MODES[{way!r}], []
    learn, way.learn = way.learn, die
    carry_out(Run(Path({folder!r})), trial(mode={way!r}), "test", {{}}, resume=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["synchronous", "impala"])
def test_a_run_that_was_killed_goes_on_and_to_the_same_bits_if_it_is_synchronous(way, tmp_path):
    """In the middle between two evaluations. Those who acted for it end by themselves."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tests=str(Path(__file__).parent), way=way, folder=str(killed)))
    # As many threads as here: sums of other parts are rounded otherwise.
    alike = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, env=alike)
    assert done.returncode == -signal.SIGKILL, done.stderr
    carry_out(Run(killed), trial(mode=way), "test", {}, resume=True)
    assert Run(killed).result().steps == 8
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in done.stdout.split()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in done.stdout.split() if Path(f"/proc/{pid}").exists()]
    if way == "synchronous":
        carry_out(Run(whole), trial(mode=way), "test", {}, resume=False)
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
def test_settings_that_cannot_be_shared_out_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SETTINGS, **changes)


def test_a_learner_takes_the_oldest_unrolls_of_more_environments(tmp_path, monkeypatch):
    """Eight environments, six unrolls an update: each unroll is learned from once, in the order of their arrival."""
    rooms, learned, take, make = [], [], acting.ImpalaActors._take, acting.ImpalaActors._unroll

    def taken(self):
        before = len(self.ready)
        take(self)
        rooms.extend(torch.cat([leaf.flatten() for leaf in row]) for row in self.ready[before:])

    def unroll(self, number):
        rows = [torch.cat([leaf.flatten() for leaf in row]) for row in self.ready[:number]]
        made = make(self, number)
        assert len(made.seen) == number == len(rows)
        learned.extend(rows)
        return made

    monkeypatch.setattr(acting.ImpalaActors, "_take", taken)
    monkeypatch.setattr(acting.ImpalaActors, "_unroll", unroll)
    carry_out(Run(tmp_path), trial(batch_size=6, environments=8), "test", {}, resume=False)
    assert len(learned) == 8 * 6
    assert all(torch.equal(one, other) for one, other in zip(learned, rooms, strict=False))


def test_no_actor_reads_the_weights_that_are_written():
    """Three copies; with all of them in use, the actors keep the newest of the past."""
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
