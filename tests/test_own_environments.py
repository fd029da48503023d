"""Custom environments: training by one command, loading in another process, and errors in one line."""

import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fastweights
import my_environments
from fastweights import InputError, cli
from fastweights.core.action_spaces import Box, Discrete, MultiDiscrete
from fastweights.core.sealed_json import read_sealed, write_sealed
from fastweights.experiments.experiment import Trial
from fastweights.experiments.run_trial import run_trial
from fastweights.tasks.gymnasium_environment import GymnasiumEnvironment
from fastweights.training.run_folder.run import Run
from fastweights.training.settings.actor_critic import ActorCritic

pytest.importorskip("gymnasium", reason="needs the extra rl")
FILE = Path(my_environments.__file__)
SMOKE = ["--preset", "smoke", "--steps", "2", "--evaluate-every", "2", "--rollout-length", "5"]
SMALL = {"layer": "delta-net", "d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 8}
SETTINGS = ActorCritic(steps=4, batch_size=4, evaluate_every=2, rollout_length=5, learning_rate=1e-3, episodes=4)


def trial(env, options=None, **changes):
    task = {"id": env, "options": options or {}}
    return Trial(
        "gymnasium-environment", task, "agent", {**SMALL, "use_last_action": True}, replace(SETTINGS, **changes)
    )


@pytest.fixture(autouse=True)
def _forget_files():
    paths = [*sys.path]
    yield
    sys.path[:] = paths


SPACES = {
    "Copy": Discrete(2),
    "CopyBits": MultiDiscrete((2, 2, 2)),
    "CopyChoices": MultiDiscrete((3, 5)),
    "CopyNumbers": Box((0.0, 0.0, float("-inf")), (10.0, 10.0, float("inf"))),
}


@pytest.mark.parametrize("name", SPACES)
def test_every_action_space_can_be_trained_rendered_and_evaluated(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = f"{FILE}:{name}"
    assert cli.main(["train", "agent", *SMOKE, "--use-last-action", "--env", env, "--run", "run"]) == 0
    output = capsys.readouterr().out
    assert "with random actions" in output
    assert re.search(r"steps/s +\d+:\d\d left", output)
    assert f"fastweights render run --env {env}" in output
    assert cli.main(["render", "run", "--env", env]) == 0
    assert "4 steps, return " in capsys.readouterr().out
    assert Path("episode.gif").stat().st_size
    assert Path("episode.png").stat().st_size
    assert cli.main(["evaluate", "run", "--env", env]) == 0
    model, task = fastweights.load("run", env=env)
    assert model.actions == task.actions == SPACES[name]
    assert Run(Path("run")).task()["actions"] == SPACES[name].facts()


@pytest.mark.parametrize(("name", "bar"), [("CopyBits", 0.9), ("CopyChoices", 0.9), ("CopyNumbers", -0.2)])
def test_agents_learn_in_every_action_space(name, bar, tmp_path):
    """Chance level per time step: 0.5, 4 / 15, and below -0.3. A perfect agent has 1, 1 and 0."""
    learning = replace(SETTINGS, steps=200, batch_size=32, evaluate_every=200, rollout_length=4, episodes=64, gamma=0.0)
    small = {"layer": None, "hidden": 32}
    task = {"id": f"my_environments:{name}"}
    learning_trial = Trial(
        "gymnasium-environment", task, "agent", small, replace(learning, learning_rate=1e-2, epsilon=1e-3)
    )
    _, result = run_trial(Run(tmp_path), learning_trial, "test", {}, resume=False)
    assert result.test["return"] / 4 > bar
    assert result.baselines["random actions"] / 4 < bar - 0.2


@pytest.mark.parametrize("name", SPACES)
def test_an_interrupted_run_resumes_bit_identically(name, tmp_path):
    """The run stops between two evaluations and repeats the actions since the last one."""
    from fastweights.training.progress import Interrupted
    from fastweights.training.rl.rollout_worker import RolloutWorker

    copying = trial(f"my_environments:{name}")
    run_trial(Run(tmp_path / "whole"), copying, "test", {}, resume=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutWorker, "act", _stopping(RolloutWorker.act, 3))
        with pytest.raises(Interrupted):
            run_trial(Run(tmp_path / "stopped"), copying, "test", {}, resume=False)
    run_trial(Run(tmp_path / "stopped"), copying, "test", {}, resume=True)
    for file in ("last.safetensors", "best.safetensors"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def _stopping(act, at):
    import os
    import signal

    calls = []

    def stop(self, *arguments):
        calls.append(0)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return act(self, *arguments)

    return stop


@pytest.mark.parametrize("part", ["observation", "reward", "last observation of an episode"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_value_is_named_with_its_time_step(part, value, tmp_path):
    t = 5 if part.startswith("last") else 3
    with pytest.raises(
        InputError, match=rf"^{part} must be finite, got {value} at time step {t} of the rollout\. Correct"
    ):
        run_trial(Run(tmp_path), trial("my_environments:Broken", {"part": part, "value": value}), "x", {}, resume=False)


@pytest.mark.parametrize("mode", ["impala", "hogwild"])
def test_a_non_finite_value_is_named_with_actor_processes(mode, tmp_path):
    with pytest.raises(InputError, match=r"^observation must be finite, got nan at time step 3 of the rollout"):
        run_trial(Run(tmp_path), trial("my_environments:Broken", mode=mode), "x", {}, resume=False)


def test_a_non_finite_value_is_named_in_evaluate_and_render(tmp_path, monkeypatch, capsys):
    env = f"{FILE}:Copy"
    assert cli.main(["train", "agent", *SMOKE, "--env", env, "--run", str(tmp_path / "run")]) == 0
    broken = shutil.copy(FILE, tmp_path / "broken.py")
    Path(broken).write_text(FILE.read_text() + "\nCopy = Broken\n")
    for command, place in (("evaluate", "evaluation"), ("render", "episode")):
        capsys.readouterr()
        assert cli.main([command, str(tmp_path / "run"), "--env", f"{broken}:Copy"]) == 2
        error = capsys.readouterr().err
        assert f"observation must be finite, got nan at time step 3 of the {place}" in error
        assert len(error.splitlines()) == 1


REFUSED = {
    "CartPoll-v1": "id must be registered in Gymnasium, got 'CartPoll-v1'.*Name the code that has or registers it",
    "nowhere:It-v0": "id must be an environment of an installed package, got 'nowhere:It-v0': No module named",
    "./no/such.py:It": "No such file or directory",
    f"{FILE}:Coppy": "id must be registered in Gymnasium, got",
    f"{FILE}:NUMBER": "id must be an environment class, got",
    f"{FILE}:nothing": "id must be an environment of Gymnasium, got",
    f"{FILE}:Named": "id must be an environment that needs no arguments, got .*'name'",
    f"{FILE}:Networked": "observation space must be a space with a fixed number of values, got Graph",
    f"{FILE}:Spaceless": "observation space must be a space with a fixed number of values, got None",
    f"{FILE}:Paired": "action space must be Discrete, MultiDiscrete, MultiBinary or Box, got Tuple",
    "": "env must be the ID of an environment, got an empty name",
}


@pytest.mark.parametrize(("env", "message"), REFUSED.items(), ids=[name.rpartition(":")[2] for name in REFUSED])
def test_invalid_environments_are_refused_in_one_line(env, message, tmp_path, capsys):
    assert cli.main(["train", "agent", *SMOKE, "--env", env, "--run", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("env", [f"{FILE}:Mapped", f"{FILE}:wrapped", f"{FILE}:Copied-v0", "my_environments:Copied-v0"])
def test_wrapped_mapped_and_registered_environments_are_accepted(env):
    task = GymnasiumEnvironment(env)
    assert task.shape == ((18,) if "Mapped" in env else (3,))
    envs = task.make_envs(2, 0)
    envs.reset()
    assert envs.step(task.actions.blank(2)).observation.shape == (2, *task.shape)


SHAPES = [((7, 7, 3), (3, 7, 7)), ((4, 16, 16), (4, 16, 16)), ((3, 3, 3), (3, 3, 3))]


@pytest.mark.parametrize(("shape", "expected"), SHAPES)
def test_images_may_have_their_channels_first_or_last(shape, expected, tmp_path):
    task = GymnasiumEnvironment("my_environments:Seen", {"shape": shape})
    assert (task.shape, task.from_pixels) == (expected, True)
    image = torch.arange(math.prod(shape)).to(torch.uint8).view(shape)
    observation = task.make_envs(2, 0).reset().observation[0]
    assert torch.equal(observation, image if shape[0] == 4 else image.permute(2, 0, 1))
    one_step = trial("my_environments:Seen", {"shape": shape}, steps=1, evaluate_every=1)
    run_trial(Run(tmp_path), one_step, "test", {}, resume=False)


FURTHER = (("hogwild", "CopyNumbers"), ("hogwild", "Clock"), ("impala", "CopyChoices"))


@pytest.mark.parametrize(
    ("mode", "env"),
    [
        *(("impala", "CopyNumbers"), ("impala", "Clock"), ("hogwild", "CopyChoices")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER),
    ],
)
def test_actor_processes_support_all_actions_and_time_limits(mode, env, tmp_path):
    run_trial(Run(tmp_path), trial(f"my_environments:{env}", mode=mode), "test", {}, resume=False)
    assert Run(tmp_path).result().steps == 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run with an environment in a file that writes a trace when it is executed."""
    folder = tmp_path_factory.mktemp("runs")
    trace = f"\nfrom pathlib import Path\nPath({str(folder / 'trace')!r}).touch()\n"
    (folder / "mine.py").write_text(FILE.read_text().replace("Copied-v0", "Mine-v0") + trace)
    assert cli.main(["train", "agent", *SMOKE, "--env", f"{folder}/mine.py:Copy", "--run", str(folder / "run")]) == 0
    (folder / "trace").unlink()
    sys.modules.pop(str(folder / "mine.py"))
    return folder / "run"


@pytest.mark.parametrize("command", [["evaluate"], ["render"], ["train", "agent", "--resume", "--run"]])
def test_code_of_an_environment_is_executed_only_if_the_user_names_it(run, command, capsys):
    assert cli.main([*command, str(run)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert f"If you trust that code, add --env {run.parent}/mine.py:Copy" in error
    with pytest.raises(InputError, match=r"\(in Python, env=\)"):
        fastweights.load(run)
    assert not (run.parent / "trace").exists()


def test_code_of_an_environment_may_have_moved(run, tmp_path, capsys):
    moved = shutil.copy(FILE, tmp_path / "moved.py")
    assert cli.main(["evaluate", str(run), "--env", f"{moved}:Copy"]) == 0
    assert cli.main(["evaluate", str(run), "--env", f"{moved}:CopyBits"]) == 2
    assert "wherever its code is" in capsys.readouterr().err
    resume = ["train", "agent", "--run", str(run), "--resume", "--env", f"{moved}:Copy"]
    assert cli.main(resume) == 0


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import gymnasium
import my_environments
from test_own_environments import Path, Run, Trial, run_trial, trial
gymnasium.register("Here-v0", my_environments.Copy)
run_trial(Run(Path({run!r})), trial("Here-v0"), "mine", {{}}, resume=False)
"""


@pytest.fixture(scope="module")
def python_run(tmp_path_factory):
    """Run of a training script in Python. Only the process of the script registers the environment."""
    run = tmp_path_factory.mktemp("python") / "run"
    program = PROGRAM.format(tests=str(FILE.parent), run=str(run))
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=300)
    return run


def test_a_run_of_a_python_script_can_be_loaded_in_another_process(python_run, tmp_path, capsys):
    model, task = fastweights.load(python_run)
    assert (model.actions, task.shape) == (Discrete(2), (3,))
    for command in ("render", "evaluate"):
        assert cli.main([command, str(python_run)]) == 2
        error = capsys.readouterr().err
        assert "got 'Here-v0'" in error
        assert "Name the code that has or registers it: MODULE:Here-v0 or PATH.py:Here-v0 (--env)" in error
        assert len(error.splitlines()) == 1
    registering = tmp_path / "registering.py"
    registering.write_text(FILE.read_text().replace("Copied-v0", "Here-v0"))
    sheet = ["--gif", str(tmp_path / "a.gif"), "--sheet", str(tmp_path / "a.png")]
    assert cli.main(["render", str(python_run), *sheet, "--env", f"{registering}:Here-v0"]) == 0
    assert cli.main(["evaluate", str(python_run), "--env", f"{registering}:Here-v0"]) == 0


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("task_options", {"id": "os:Copy"}),
        ("task_options", {"options": {"env_id": "os:Copy"}}),
        ("task_options", {"options": {"inner": [["os.py"]]}}),
        ("task_options", {"no_such_option": 3}),
        ("model_options", {"layer": "os:path"}),
        ("model_options", {"options": {"feature_map": "os:path"}}),
        ("model_options", {"no_such_option": 3}),
        ("training", {"steps": "many"}),
        ("training", {"no_such_setting": 3}),
        ("task", "no-such-task"),
        ("model", 3),
        ("settings", ["os", "path"]),
        ("settings", []),
    ],
)
def test_settings_that_name_code_are_refused(python_run, part, value, tmp_path):
    shutil.copytree(python_run, tmp_path / "run")
    content = read_sealed(tmp_path / "run" / "config.json")
    settings = content["config"]["trial"]
    settings[part] = {**settings[part], **value} if isinstance(value, dict) else value
    write_sealed(tmp_path / "run" / "config.json", content)
    with pytest.raises(InputError):
        fastweights.load(tmp_path / "run")


def test_a_layer_object_is_stored_with_its_address(tmp_path):
    import my_memories

    custom = trial("CartPole-v1", steps=2)
    custom = custom._replace(model_options={**custom.model_options, "layer": my_memories.fading})
    run_trial(Run(tmp_path), custom, "mine", {}, resume=False)
    with pytest.raises(InputError, match="add --layer my_memories:fading"):
        fastweights.load(tmp_path)
    assert fastweights.load(tmp_path, layer=my_memories.fading).model.actions == Discrete(2)
