"""Rendering of episodes: actions, rewards and frames of every time step."""

import re

import pytest
import torch

from fastweights import cli
from fastweights.experiments.job import Job
from fastweights.experiments.run_jobs import run_job
from fastweights.inspect import analyze_episode
from fastweights.inspect.episode import frames_of
from fastweights.models import Agent
from fastweights.registry import EXPERIMENTS
from fastweights.tasks import Catch, TMaze
from fastweights.training.settings._training import Hardware

Image = pytest.importorskip("PIL.Image", reason="matplotlib of the extra train brings it")
SMALL = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 8}


def agent(task, layer="delta-net"):
    torch.manual_seed(0)
    return Agent(*task.arguments, layer, **SMALL).eval()


@pytest.mark.parametrize("greedy", [True, False])
def test_the_recorded_actions_give_the_recorded_rewards(greedy):
    """A repetition of the actions has the same rewards. A greedy agent takes the most probable actions."""
    task = TMaze(5)
    episode = analyze_episode(agent(task), task, seed=3, greedy=greedy)
    envs = task.make_envs(1, 3, 2)
    envs.reset()
    rewards = [float(envs.step(action[None]).reward) for action in episode.actions]
    assert rewards == episode.rewards.tolist()
    assert len(rewards) == 6 == len(episode.frames) == len(episode.values)
    assert not greedy or float(episode.probabilities.min()) >= 1 / task.actions.n
    assert episode.memories[0].series["written"].shape == (6, 2)


def test_an_episode_ends_at_its_limit_or_its_end():
    task = Catch(size=6, visible_frames=2)
    assert [len(analyze_episode(agent(task), task, max_steps=most).actions) for most in (1, 3, 300)] == [1, 3, 5]


def test_frames_show_the_observations():
    screens = torch.rand(4, 5, 7)
    grey = frames_of(screens)
    assert grey.shape == (4, 5, 7, 3)
    assert float(torch.corrcoef(torch.stack([grey[..., 0].flatten().float(), screens.flatten()]))[0, 1]) > 0.999
    assert int(grey.min()) == 0
    assert int(grey.max()) == 255
    colours, stacked = torch.randint(256, (2, 4, 3, 8, 8), dtype=torch.uint8)
    assert torch.equal(frames_of(colours), colours.permute(0, 2, 3, 1))
    assert torch.equal(frames_of(stacked[:, :2])[..., 1], stacked[:, 1])
    assert frames_of(torch.rand(4, 3)).shape == (4, 1, 3, 3)
    assert not frames_of(torch.ones(4, 3)).any()


@pytest.mark.parametrize(("model", "memories", "text"), [("delta-net", 1, "1 memory"), ("lstm", 0, "0 memories")])
def test_render_writes_film_and_sheet(tmp_path, capsys, model, memories, text):
    job = Job("agents/memory", "smoke", model, "t-maze", 0)
    run_job(job, EXPERIMENTS.load(job.experiment), tmp_path, Hardware())
    film, sheet = tmp_path / "film.gif", tmp_path / "sheet.png"
    assert cli.main(["render", str(job.run(tmp_path).path), "--gif", str(film), "--sheet", str(sheet)]) == 0
    assert re.search(rf"11 steps, return -?[\d.]+, {text} ", capsys.readouterr().out)
    with Image.open(film) as shown, Image.open(sheet) as still:
        assert shown.n_frames == 11
        assert still.height > 150 * (2 + memories)


def test_a_report_shows_an_episode_of_every_agent(tmp_path, capsys):
    """The episode is drawn once. Later reports show it without the weights."""
    for model in ("delta-net", "lstm"):
        job = Job("agents/memory", "smoke", model, "t-maze", 0)
        run_job(job, EXPERIMENTS.load(job.experiment), tmp_path, Hardware())
    assert cli.main(["report", str(tmp_path)]) == 0
    drawn = sorted(tmp_path.rglob("episode.png"))
    assert [path.parts[-4] for path in drawn] == ["delta-net", "lstm"]
    pages = [(tmp_path / name).read_text() for name in ("report.html", "report.md")]
    assert pages[0].count('src="data:image/png') == 2 == pages[1].count("(figures/agents-memory-smoke-episode-")
    assert sorted(path.read_bytes() for path in tmp_path.glob("figures/*.png")) == sorted(p.read_bytes() for p in drawn)
    for path in tmp_path.rglob("*.safetensors"):
        path.unlink()
    assert cli.main(["report", str(tmp_path)]) == 0
    assert [(tmp_path / name).read_text() for name in ("report.html", "report.md")] == pages


def test_a_run_without_an_agent_is_refused(tmp_path, capsys):
    job = Job("schlag2021/figure-2", "smoke", "linear", "20", 0)
    run_job(job, EXPERIMENTS.load(job.experiment), tmp_path, Hardware())
    assert cli.main(["render", str(job.run(tmp_path).path)]) == 2
    assert "run must be a run of an agent, got" in capsys.readouterr().err
