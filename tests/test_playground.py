"""The interactive pages: watched cells, and both pages in headless Chromium, compared with Python."""

import importlib.util
import sys
from importlib import import_module
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

import fastweights
from chromium import CHROMIUM, browser, served
from fastweights import Cell, scan
from fastweights.inspect import record_scans
from fastweights.layers.base.cell_layer import CellLayer
from fastweights.registry import RULES
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape

pytest.importorskip("docutils", reason="builds with the extra docs")
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
playground, stream, memories, watched = (
    import_module(f"playground{name}") for name in ("", "_stream", "_memories", "_watched")
)
del sys.path[0]
MEMORIES, Memory = memories.MEMORIES, memories.Memory

SHAPE = Shape(1, 5, 2, 4, 3)
TEXT = 'Dorothy looked at the Scarecrow.\n"Oh, dear!"'
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
"""Of float32 sums in another order."""
PAGES = (playground.PAGE, stream.PAGE)
WIDTHS = (1280, 736, 400, 353)
"""Widths of a window and of a frame in the site, on a desktop and on a phone."""
READY = "!at('controls').disabled && at('status').textContent === ''"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
slow = pytest.mark.slow
in_browser = [
    slow,
    pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs ziglang"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


def watched_run(cell, memory):
    """The outputs of a cell with and without watching, and the states of the watched cell after every step."""
    sample = scan_checks.arguments(cell, SHAPE, torch.float64)
    y, _ = scan(cell, sample.inputs, None, sample.params, backend="reference")
    observed, states, state, outputs = watched.watched_cell(cell, memory), [], None, []
    for t in range(SHAPE.T):
        inputs = observed.Inputs(*(x[:, t : t + 1] for x in sample.inputs))
        output, state = scan(observed, inputs, state, sample.params, backend="reference")
        outputs.append(output)
        states.append(state)
    return y, torch.cat(outputs, 1), states, sample


@pytest.mark.parametrize("name", RULES.names())
def test_change_of_a_memory_is_written_minus_erased(name):
    y, same, states, _ = watched_run(Cell.from_name(name), Memory(name, name, ""))
    torch.testing.assert_close(same, y)
    for before, after in pairwise(states):
        torch.testing.assert_close(after.memory, before.memory + after.written - after.erased)
        torch.testing.assert_close(after.memory, after.W)


def test_delta_rule_writes_the_new_value_and_erases_the_retrieved_one():
    _, _, states, sample = watched_run(Cell.from_name("delta"), Memory("delta", "", ""))
    k, v, beta = (x[:, -1] for x in (sample.inputs.k, sample.inputs.v, sample.inputs.beta))
    retrieved = (states[-2].W @ k[..., None])[..., 0]
    weight = beta[..., None, None] * k[..., None, :]
    torch.testing.assert_close(states[-1].written, weight * v[..., None])
    torch.testing.assert_close(states[-1].erased, weight * retrieved[..., None])


def test_srwm_writes_the_value_of_its_query_and_erases_the_value_of_its_key():
    _, _, states, sample = watched_run(Cell.from_name("srwm"), Memory("srwm", "", "", "W_y", memories.by_srwm))
    x = sample.inputs.x[:, -1, ..., None]
    W_y, W_q, W_k, W_beta = (p + getattr(states[-2], n) for n, p in sample.params._asdict().items())
    q, k, beta = (W_q @ x).softmax(-2), (W_k @ x).softmax(-2), (W_beta @ x).sigmoid()[..., :1, :]
    torch.testing.assert_close(states[-1].written, beta * (W_y @ q) * k.mT)
    torch.testing.assert_close(states[-1].erased, beta * (W_y @ k) * k.mT)


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.layer)
def test_runs_of_the_page_are_small_and_differ_in_the_layer_only(memory):
    assert sum((memory.run / name).stat().st_size for name in memories.FILES) < 500_000
    configs = [playground.Run.open(one.run).config()["config"]["trial"] for one in (MEMORIES[0], memory)]
    assert configs[0]["training"] == configs[1]["training"]
    models = [{k: v for k, v in config["model_options"].items() if k not in ("layer", "options")} for config in configs]
    assert models[0] == models[1]
    assert playground.Run.open(memory.run).result().test["bits"] < 3


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.layer)
@torch.no_grad()
def test_watched_model_has_the_outputs_of_the_model(memory):
    model, task = fastweights.load(memory.run)
    observed = watched.watched_model(model, memory)
    for layer in (layer for one in (model, observed) for layer in one.modules() if isinstance(layer, CellLayer)):
        layer.backend = "reference"
    tokens = task.encode(TEXT)[None]
    torch.testing.assert_close(observed(tokens)[0], model(tokens)[0])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a folder with both pages, and with a page that has each one in a frame."""
    folder = tmp_path_factory.mktemp("site")
    playground.write(folder)
    extra = folder / playground.EXTRA
    text = (folder / "playground.md").read_text()
    for name in PAGES:
        frame = next(line for line in text.splitlines() if line.startswith("<iframe"))
        (extra / f"framed-{name}").write_text(
            f'<!doctype html><link rel="icon" href="data:,"><h1>Page</h1>{frame.replace(playground.PAGE, name)}'
        )
    with served(extra) as address:
        yield address, extra


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def opened(page, site, name, **options):
    page.errors.clear()
    page.open(f"{site[0]}/{name}", **options)
    page.wait_for(READY)
    return page


class TestPages:
    """Properties of every page."""

    pytestmark = in_browser

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("name", PAGES)
    def test_page_fits_its_window_and_has_no_errors(self, chromium, site, name, width, scheme):
        page = opened(chromium, site, name, width=width, scheme=scheme)
        assert page.value(OVERFLOW) <= 0
        for button in page.value("[...document.querySelectorAll('#controls button')].map((b) => b.id)"):
            page.value(f"at('{button}').click()")
        page.wait_for("document.querySelectorAll('canvas').length > 0")
        assert page.value(OVERFLOW) <= 0
        paper = page.value("getComputedStyle(document.documentElement).backgroundColor")
        assert (max(map(int, paper[4:-1].split(","))) < 128) == (scheme == "dark")
        assert not page.errors

    @pytest.mark.parametrize("name", PAGES)
    def test_controls_and_pictures_have_names(self, chromium, site, name):
        page = opened(chromium, site, name)
        unnamed = "[...document.querySelectorAll('input, select, textarea')].filter((e) => !e.labels?.length).length"
        assert page.value(unnamed) == 0
        assert page.value("[...document.querySelectorAll('button')].filter((b) => !b.textContent).length") == 0
        unnamed = "[...document.querySelectorAll('canvas, [role=group]')].filter((c) => !c.ariaLabel).length"
        assert page.value(unnamed) == 0

    @pytest.mark.parametrize("name", PAGES)
    def test_arrow_keys_move_through_the_stream(self, chromium, site, name):
        page = opened(chromium, site, name)
        end = int(page.value("at('position').value"))
        page.value("at('position').focus()")
        page.press("ArrowLeft")
        page.wait_for(f"at('place').textContent.startsWith('{end - 1} of')")
        page.press("ArrowRight")
        page.wait_for(f"at('place').textContent.startsWith('{end} of')")

    @pytest.mark.parametrize("name", PAGES)
    def test_missing_webassembly_is_named(self, chromium, site, name):
        chromium.open(f"{site[0]}/{name}", before="delete globalThis.WebAssembly")
        chromium.wait_for("at('message').textContent.includes('WebAssembly')")
        assert chromium.value("at('controls').disabled")
        assert chromium.value("at('status').textContent") == ""

    @pytest.mark.parametrize("name", PAGES)
    def test_page_runs_from_a_file(self, chromium, site, name):
        chromium.open((site[1] / name).as_uri())
        chromium.wait_for(READY)

    def test_blocked_file_names_the_remedy(self, chromium, site):
        block = "globalThis.Worker = class { constructor() { throw new Error('blocked'); } }"
        chromium.open((site[1] / playground.PAGE).as_uri(), before=block)
        chromium.wait_for("at('message').textContent.includes('python -m http.server')")

    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("name", PAGES)
    def test_frame_is_as_high_as_the_page(self, chromium, site, name, width):
        chromium.errors.clear()
        chromium.open(f"{site[0]}/framed-{name}", width=width)
        inside = "document.querySelector('iframe').contentDocument"
        chromium.wait_for(f"{inside}?.getElementById('status')?.textContent === ''")
        chromium.wait_for(f"{inside}.documentElement.scrollHeight <= document.querySelector('iframe').clientHeight")
        assert chromium.value(f"{inside}.querySelector('h1')") is None
        assert chromium.value(f"{inside}.getElementById('message').textContent") == ""
        assert not chromium.errors


def rounded(model):
    """The model with its matrices rounded as in a weight file with int8."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding) and module.weight.numel() >= 1024:
            weight = module.weight.data
            scale = weight.abs().amax(1, keepdim=True) / 127
            module.weight.data = (weight / scale).round() * scale
    return model


def observed(page):
    """The bits and the tensors of all models on the page."""
    views = "Object.fromEntries(Object.entries(m.views).map(([name, v]) => [name, [...v.numbers]]))"
    return page.value(f"last.models.map((m) => ({{bits: m.bits, top: m.top, views: {views}}}))")


def read(page, text, look=0, start=0):
    """The page after it has read a text, with the memory number `look`."""
    page.value(f"at('look').selectedIndex = {look}; at('start').value = {start}")
    page.value(f"at('text').value = {text!r}; last = null; at('text').oninput()")
    page.wait_for("last && !isBusy")
    return observed(page)


@torch.no_grad()
def in_python(memory, text, passage):
    """Bits of the letters of a text after a passage, and the tensors of every layer and head, without watching."""
    model, task = fastweights.load(memory.run)
    tokens = task.encode(passage + text)[None]
    with record_scans(rounded(model)) as scans:
        logits, _ = model(tokens)
    bits = -log_softmax(logits[0, :-1], -1).gather(1, tokens[0, 1:, None])[-len(text) :, 0] / log(2)
    cells = [watched.watched_cell(one.call.cell, memory) for one in scans]
    states = [
        scan(cell, one.call.tensors.inputs, None, one.call.tensors.params, backend="reference")[1]
        for cell, one in zip(cells, scans, strict=True)
    ]
    heads = range(next(layer for layer in model.modules() if isinstance(layer, CellLayer)).slow_net.num_heads)
    views = [{view: getattr(state, view)[0, head] for view in watched.VIEWS} for state in states for head in heads]
    return bits, views, logits[0, -1].softmax(-1), task


class TestModels:
    """The page with the language models."""

    pytestmark = in_browser

    @pytest.mark.parametrize("start", [0, 1])
    def test_numbers_are_those_of_python(self, chromium, site, start):
        page = opened(chromium, site, playground.PAGE)
        expected = [in_python(memory, TEXT, playground.passage() * start) for memory in MEMORIES]
        for look in range(len(expected[0][1])):
            for model, (bits, views, p, task) in zip(read(page, TEXT, look, start), expected, strict=True):
                np.testing.assert_allclose(model["bits"][-len(bits) :], bits, **TOLERANCE)
                letter, probability = model["top"][0]
                assert int(task.encode(letter)[0]) == int(p.argmax())
                assert probability == pytest.approx(float(p.max()), abs=1e-4)
                for view in watched.VIEWS:
                    np.testing.assert_allclose(model["views"][view], views[look][view].flatten(), **TOLERANCE)

    def test_cards_have_the_numbers_of_the_runs(self, chromium, site):
        page = opened(chromium, site, playground.PAGE)
        for memory, card in zip(MEMORIES, page.value("cards.map((card) => card.innerText)"), strict=True):
            result = playground.Run.open(memory.run).result()
            assert memory.title in card
            assert f"{result.test['bits']:.2f}" in card
            assert f"{result.parameters:,}" in card
        mean = np.mean(observed(page)[0]["bits"])
        assert float(page.value("cards[0].querySelector('.text-bits').textContent")) == pytest.approx(mean, abs=0.006)

    def test_steps_back_and_forth_give_the_same_numbers(self, chromium, site):
        page = opened(chromium, site, playground.PAGE)
        end = read(page, TEXT)
        for button, position in (("back", len(TEXT) - 1), ("step", len(TEXT))):
            page.value(f"at('{button}').click()")
            page.wait_for(f"!isBusy && last.position === {position}")
        assert observed(page) == end

    def test_unknown_letters_are_named(self, chromium, site):
        page = opened(chromium, site, playground.PAGE)
        clean = read(page, "the Wicked")
        assert page.value("at('message').textContent") == ""
        assert read(page, "the ☃Wicked") == clean
        assert "left out" in page.value("at('message').textContent")

    def test_every_model_writes(self, chromium, site):
        page = opened(chromium, site, playground.PAGE)
        for writer in range(len(MEMORIES)):
            letter = read(page, TEXT)[writer]["top"][0][0]
            page.value(f"at('writer').selectedIndex = {writer}; at('temperature').value = 0; at('write').click()")
            page.wait_for(f"!isBusy && last.position === {len(TEXT) + 1}")
            assert page.value("at('text').value") == TEXT + letter

    def test_writing_continues_until_it_is_stopped(self, chromium, site):
        page = opened(chromium, site, playground.PAGE)
        read(page, "Oz")
        page.value("at('write-on').click()")
        page.wait_for("at('text').value.length > 20")
        page.value("at('write-on').click()")
        assert page.value("at('write-on').textContent") == "Write on"
        page.value("at('text').value = 'Toto'; at('text').oninput()")
        page.wait_for("!isBusy && last.text === 'Toto'")

    def test_reading_on_ends_with_the_text(self, chromium, site):
        page = opened(chromium, site, playground.PAGE)
        read(page, "Dorothy")
        page.value("at('position').value = 0; at('position').oninput()")
        page.wait_for("!isBusy && last.position === 0")
        page.value("at('play').click()")
        page.wait_for("last.position === 7 && mode === ''")


STREAMS = ("a1", "a1 b2 a3", stream.STREAM)


@torch.no_grad()
def retrieved_in_python(name, pairs, keys):
    """The memory, and the retrieved vector of every key, after the pairs have been written."""
    cell, factors = Cell.from_name(name), {"rate": 0.7, "decay": 0.9}
    size, vectors, T = stream.SIZE, torch.tensor(stream.keys()[keys]), len(pairs)
    written, values = torch.tensor(pairs).T

    def tensor(field, slot):
        if slot.kind == "key":
            one = vectors.expand(1, T, size, size) if field == "q" else vectors[written][None, :, None]
            return one.expand(1, T, size, size)
        if slot.kind == "value":
            return torch.eye(size)[values][None, :, None].expand(1, T, size, size)
        return torch.full((1, T, size, *slot.shape(stream.SIZES)), factors[slot.kind])

    inputs = cell.Inputs(**{field: tensor(field, slot) for field, slot in cell.slots["Inputs"].items()})
    y, state = scan(cell, inputs, backend="reference")
    return state.W[0, 0], y[0, -1]


class TestStream:
    """The page with a stream of keys and values."""

    pytestmark = in_browser

    @pytest.mark.parametrize("keys", stream.keys())
    @pytest.mark.parametrize("text", STREAMS)
    def test_every_rule_gives_the_numbers_of_python(self, chromium, site, text, keys):
        page = opened(chromium, site, stream.PAGE)
        page.value(f"at('keys').value = '{keys}'; at('strength').value = 0.7; at('decay-factor').value = 0.9")
        page.value(f"at('stream').value = '{text}'; at('stream').oninput()")
        pairs = [(ord(pair[0]) - ord("a"), int(pair[1]) - 1) for pair in text.split()]
        for name in stream.NAMES:
            memory, y = retrieved_in_python(name, pairs, keys)
            np.testing.assert_allclose(page.value(f"[...results['{name}'].memory]"), memory.flatten(), **TOLERANCE)
            for key, value in dict(pairs).items():
                one = f"results['{name}'].retrieved.find(({{ key }}) => key === {key})"
                np.testing.assert_allclose(page.value(f"[...{one}.vector]"), y[key], **TOLERANCE)
                error = (y[key] - torch.eye(stream.SIZE)[value]).norm()
                assert page.value(f"{one}.error") == pytest.approx(float(error), abs=1e-4)

    def test_delta_rule_replaces_a_value_and_the_sum_does_not(self, chromium, site):
        page = opened(chromium, site, stream.PAGE)
        page.value("at('stream').value = 'a1'; at('stream').oninput(); at('repeat').click()")
        assert page.value("at('stream').value") == "a1 a2"
        rows = {"delta": "a 2 2 right 0.000", "sum": "a 2 1 wrong 1.000"}
        for rule, row in rows.items():
            page.value(f"at('rule').value = '{rule}'; at('rule').oninput()")
            assert page.value("at('retrieval').innerText").split() == row.split()

    def test_rates_without_effect_are_named(self, chromium, site):
        page = opened(chromium, site, stream.PAGE)
        for name in stream.NAMES:
            page.value(f"at('rule').value = '{name}'; at('rule').oninput()")
            kinds = {slot.kind for slot in Cell.from_name(name).slots["Inputs"].values()}
            for role in ("rate", "decay"):
                assert ("not used" in page.value(f"at('{role}').innerText")) == (role not in kinds)

    def test_text_that_is_no_pair_is_named(self, chromium, site):
        page = opened(chromium, site, stream.PAGE)
        page.value("at('stream').value = 'a1 z9 B2'; at('stream').oninput()")
        assert page.value("at('place').textContent") == "2 of 2"
        assert "left out" in page.value("at('message').textContent")
