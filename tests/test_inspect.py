"""What is shown of a memory is what it does: numbers of the state, and origins of reads held to formulas."""

import json
import re

import numpy as np
import pytest
import torch

from fastweights import Cell, InputError, cli, scan
from fastweights.commands._shown import rates
from fastweights.inspect import analyze, rate_ranges, record_scans, render_html, watch_text
from fastweights.inspect.memory_trace import effective_rank
from fastweights.layers import make_layer
from fastweights.models import LanguageModel
from fastweights.signature import Key, Matrix, Rate, Value
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape
from fastweights.testing.tolerance import error, tolerance
from formulas import trace

EXACT = tolerance(torch.float64).gradient


class Scanning(torch.nn.Module):
    """Runs a cell."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, given):
        return scan(self.cell, *given)


def contents(cell, given, member=0):
    model = Scanning(cell)
    with record_scans(model) as scans:
        y, state = model(given)
    (watched,) = scans
    return analyze(watched, member), y[member], state


def test_a_sum_attends_as_linear_attention_does():
    cell = Cell.from_name("sum")
    for shape in (Shape(2, 7, 2, 5, 3), Shape(1, 1, 1, 2, 4)):
        given = scan_checks.arguments(cell, shape)._replace(reset=None)
        found, _, _ = contents(cell, given)
        q, k = given.inputs.q[0], given.inputs.k[0]
        assert found.signed
        assert error(found.attention, torch.einsum("thk,ihk->hti", q, k).tril()) < EXACT


def test_delta_attends_through_what_was_erased_since():
    cell = Cell.from_name("delta")
    given = scan_checks.arguments(cell, Shape(1, 6, 2, 5, 3))._replace(reset=None)
    found, _, _ = contents(cell, given)
    q, k, _, beta = (x[0] for x in given.inputs)
    for h in range(2):
        for t in range(6):
            right = q[t, h]
            for i in range(t, -1, -1):
                assert error(found.attention[h, t, i], beta[i, h] * (k[i, h] @ right)) < EXACT
                right = right - beta[i, h] * k[i, h] * (k[i, h] @ right)


@pytest.mark.parametrize("name", Cell.names())
def test_every_cell_can_be_looked_into(name):
    """Reads stem from the past, after the last reset only; the state is held as long as the scan says."""
    cell = Cell.from_name(name)
    given = scan_checks.arguments(cell, Shape(2, 5, 2, 5, 4))
    given = given._replace(reset=torch.tensor([[False] * 5, [False, False, False, True, False]]))
    found, y, state = contents(cell, given, member=1)
    assert not found.attention.triu(1).any()
    assert not found.attention[:, 3:, :3].any()
    assert found.attention.isfinite().all()
    for course in found.series.values():
        assert course.shape == (5, 2)
        assert course.isfinite().all()
    held = sum(leaf[1].reshape(2, -1).square().sum(1) for leaf in state).sqrt()
    assert error(found.series["held"][-1], held) < EXACT
    assert error(found.series["read"], y.flatten(2).norm(dim=2)) < EXACT
    for course, most in found.limits.items():
        assert (found.series[course] <= most + 1e-9).all()


def computes_rates(cell):
    """Whether a cell has weights for a rate, or takes one that it squashes itself."""
    names = [name for kind in ("State", "Params") for name in cell.slots.get(kind, {})]
    raw = [name for name, slot in cell.slots["Inputs"].items() if slot.kind == "value"]
    return any("beta" in name for name in names + raw)


INVENTED = [name for name in Cell.names() if computes_rates(Cell.from_name(name))]


@pytest.mark.parametrize("name", INVENTED)
@pytest.mark.parametrize("with_reset", [False, True])
def test_rates_that_a_memory_computes_itself_are_those_of_its_formula(name, with_reset):
    """Course and range equal the rates in the NumPy loops, from the state before each write and after each reset."""
    cell, shape = Cell.from_name(name), Shape(2, 6, 2, 5, 4)
    given = scan_checks.arguments(cell, shape)
    reset = torch.zeros(2, 6, dtype=torch.bool)
    reset[:, 3] = with_reset
    given = given._replace(reset=reset if with_reset else None)
    model = Scanning(cell)
    with record_scans(model) as scans:
        model(given)
    found, ranges = analyze(scans[0], 1), rate_ranges(scans)[""]
    pieces = [slice(0, 3), slice(3, 6)] if with_reset else [slice(0, 6)]
    every = {}
    for b, h in np.ndindex(2, 2):
        state, rows = one_head(given.state, (b, h)), []
        for piece in pieces:
            rows += trace(name, state, one_head(given.inputs, (b, piece, h)), one_head(given.params, h))[2]
            state = {field: np.zeros_like(leaf) for field, leaf in state.items()}
        for rate in rows[0]:
            every.setdefault(rate, []).extend(row[rate] for row in rows)
            if b == 1:
                want = torch.tensor(np.array([row[rate] for row in rows]))
                assert error(found.series[rate][:, h], want) < EXACT
    assert {*every} <= {*found.rates}
    assert all(ranges[rate] == pytest.approx((min(values), max(values))) for rate, values in every.items())
    assert all(0 < low <= high < 1 for low, high in found.rate_ranges.values())


def one_head(record, place):
    return {} if record is None else {name: leaf[place].numpy() for name, leaf in record._asdict().items()}


def test_rates_of_a_memory_are_printed(capsys):
    model = LanguageModel(5, ["srwm", "lstm", "sum"], 8, num_layers=3, num_heads=2).eval()
    with record_scans(model) as scans:
        model(torch.randint(5, (1, 6)))
    lines = rates([analyze(scan) for scan in scans]).splitlines()
    assert lines[0] == "Rates over steps and heads:"
    (line,) = lines[1:]
    assert re.fullmatch(r"blocks\.0\.layer: (beta_(y|q|k|beta) 0\.\d\d to 0\.\d\d(, )?){4}", line), line
    assert rates([]) == ""


def fading(W: Matrix, k: Key, v: Value, rate: Rate) -> Matrix:
    """Loses what the rate does not keep."""
    return rate * W + torch.outer(v, k)


def test_what_changes_is_written_and_what_goes_is_forgotten():
    cell = Cell.from_function(fading)
    k, v = torch.eye(3, dtype=torch.float64)[None, :, None], torch.ones(1, 3, 1, 2, dtype=torch.float64)
    rate = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)[None, :, None]
    found, _, _ = contents(cell, (cell.Inputs(k, k, v, rate),))
    assert found.series["forgotten"][:, 0].tolist() == [0.0, 0.5, 1.0]
    assert error(found.series["written"][:, 0].square(), torch.tensor([2.0, 2.5, 4.5])) < EXACT
    assert found.series["rate"][:, 0].tolist() == [1.0, 0.5, 0.0]


def test_rank_counts_what_is_kept_apart():
    q = torch.linalg.qr(torch.randn(5, 3, dtype=torch.float64)).Q
    assert error(effective_rank(q @ q.T), torch.tensor(3.0)) < 1e-6
    assert effective_rank(torch.zeros(2, 4, 3)).tolist() == [0.0, 0.0]


def test_watching_changes_nothing_and_ends():
    model = LanguageModel(5, ["delta-net", "lstm", "srwm"], 8, num_layers=3, num_heads=2).eval()
    tokens = torch.randint(5, (2, 6))
    want, _ = model(tokens)
    with record_scans(model) as scans:
        got, _ = model(tokens)
        scan("sum", Cell.from_name("sum").Inputs(*torch.randn(3, 1, 2, 1, 4).unbind()))
    assert torch.equal(got, want)
    assert [watched.name for watched in scans] == ["blocks.0.layer", "blocks.2.layer"]
    model(tokens)
    assert len(scans) == 2


def test_an_error_ends_it_too():
    layer = make_layer("delta-net", 8, num_heads=2)
    with pytest.raises(InputError), record_scans(layer):
        layer(torch.randn(1, 2, 7))
    assert not any(module._forward_pre_hooks for module in layer.modules())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = tmp_path_factory.mktemp("inspect") / "run"
    flags = ["--preset", "smoke", "--layer", "delta-net", "--sample", "0", "--characters", "9000"]
    assert cli.main(["train", "char-lm", *flags, "--run", str(run)]) == 0
    return run


def test_the_command_writes_a_page_that_needs_no_other(run, tmp_path, capsys):
    target = tmp_path / "page.html"
    words = "Dorothy (Toto) said so:\n"
    assert cli.main(["inspect", str(run), "--text", words, "--output", str(target)]) == 0
    assert "2 memories, 24 tokens" in capsys.readouterr().out
    text = target.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert "".join(data["tokens"]) == words
    assert {len(head) for memory in data["memories"] for head in memory["series"]["read"]} == {len(words)}


def test_texts_do_not_end_the_script_they_stand_in():
    model = LanguageModel(3, "delta-net", 8, num_layers=1, num_heads=2).eval()
    with record_scans(model) as scans:
        model(torch.tensor([[0, 1]]))
    text = render_html([analyze(scans[0])], ["</script>", "<!--"], "a <b>")
    assert text.count("</script>") == 2
    assert "a &lt;b&gt;" in text


def test_what_holds_no_memory_is_told(run):
    model = LanguageModel(99, "lstm", 8, num_layers=1, num_heads=2).eval()
    from fastweights import load

    with pytest.raises(InputError, match="model must be one with a memory that is a cell"):
        watch_text(model, load(run).task, "a")
    with pytest.raises(InputError, match="tokens must be as many"):
        render_html(watch_text(load(run).model, load(run).task, "ab")[0], ["a"], "title")
    assert cli.main(["inspect", str(run), "--text", ""]) == 2
