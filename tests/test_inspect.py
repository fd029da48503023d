"""Analyses of memories: numbers of the state, and attention of reads, equal formulas."""

import json
import re

import numpy as np
import pytest
import torch

from fastweights import Cell, InputError, cli, scan
from fastweights.commands._results import rates
from fastweights.inspect import analyze, analyze_text, rate_ranges, record_scans, render_html
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

    def forward(self, scan_arguments):
        return scan(self.cell, *scan_arguments)


def contents(cell, scan_arguments, member=0):
    model = Scanning(cell)
    with record_scans(model) as scans:
        y, state = model(scan_arguments)
    (recorded,) = scans
    return analyze(recorded, member), y[member], state


def test_attention_of_the_sum_rule_is_linear_attention():
    cell = Cell.from_name("sum")
    for shape in (Shape(2, 7, 2, 5, 3), Shape(1, 1, 1, 2, 4)):
        scan_arguments = scan_checks.arguments(cell, shape)._replace(reset=None)
        memory_trace, _, _ = contents(cell, scan_arguments)
        q, k = scan_arguments.inputs.q[0], scan_arguments.inputs.k[0]
        assert memory_trace.signed
        assert error(memory_trace.attention, torch.einsum("thk,ihk->hti", q, k).tril()) < EXACT


def test_attention_of_the_delta_rule_includes_later_erasures():
    cell = Cell.from_name("delta")
    scan_arguments = scan_checks.arguments(cell, Shape(1, 6, 2, 5, 3))._replace(reset=None)
    memory_trace, _, _ = contents(cell, scan_arguments)
    q, k, _, beta = (x[0] for x in scan_arguments.inputs)
    for h in range(2):
        for t in range(6):
            right = q[t, h]
            for i in range(t, -1, -1):
                assert error(memory_trace.attention[h, t, i], beta[i, h] * (k[i, h] @ right)) < EXACT
                right = right - beta[i, h] * k[i, h] * (k[i, h] @ right)


@pytest.mark.parametrize("name", Cell.names())
def test_every_cell_can_be_analysed(name):
    """Attention is causal and does not cross a reset; the norm of the state is that of the scan."""
    cell = Cell.from_name(name)
    scan_arguments = scan_checks.arguments(cell, Shape(2, 5, 2, 5, 4))
    scan_arguments = scan_arguments._replace(reset=torch.tensor([[False] * 5, [False, False, False, True, False]]))
    memory_trace, y, state = contents(cell, scan_arguments, member=1)
    assert not memory_trace.attention.triu(1).any()
    assert not memory_trace.attention[:, 3:, :3].any()
    assert memory_trace.attention.isfinite().all()
    for series in memory_trace.series.values():
        assert series.shape == (5, 2)
        assert series.isfinite().all()
    norm = sum(leaf[1].reshape(2, -1).square().sum(1) for leaf in state).sqrt()
    assert error(memory_trace.series["held"][-1], norm) < EXACT
    assert error(memory_trace.series["read"], y.flatten(2).norm(dim=2)) < EXACT
    for series_name, limit in memory_trace.limits.items():
        assert (memory_trace.series[series_name] <= limit + 1e-9).all()


def computes_rates(cell):
    """Whether a cell has weights for a rate, or a rate with its own activation."""
    names = [name for kind in ("State", "Params") for name in cell.slots.get(kind, {})]
    raw = [name for name, slot in cell.slots["Inputs"].items() if slot.kind == "value"]
    return any("beta" in name for name in names + raw)


WITH_RATES = [name for name in Cell.names() if computes_rates(Cell.from_name(name))]


@pytest.mark.parametrize("name", WITH_RATES)
@pytest.mark.parametrize("with_reset", [False, True])
def test_rates_computed_inside_a_cell_equal_its_formula(name, with_reset):
    """Series and range equal the rates in the NumPy loops, from the state before each write and after each reset."""
    cell, shape = Cell.from_name(name), Shape(2, 6, 2, 5, 4)
    scan_arguments = scan_checks.arguments(cell, shape)
    reset = torch.zeros(2, 6, dtype=torch.bool)
    reset[:, 3] = with_reset
    scan_arguments = scan_arguments._replace(reset=reset if with_reset else None)
    model = Scanning(cell)
    with record_scans(model) as scans:
        model(scan_arguments)
    memory_trace, ranges = analyze(scans[0], 1), rate_ranges(scans)[""]
    pieces = [slice(0, 3), slice(3, 6)] if with_reset else [slice(0, 6)]
    rates_of_formula = {}
    for b, h in np.ndindex(2, 2):
        state, rows = one_head(scan_arguments.state, (b, h)), []
        for piece in pieces:
            rows += trace(
                name, state, one_head(scan_arguments.inputs, (b, piece, h)), one_head(scan_arguments.params, h)
            )[2]
            state = {field: np.zeros_like(leaf) for field, leaf in state.items()}
        for rate in rows[0]:
            rates_of_formula.setdefault(rate, []).extend(row[rate] for row in rows)
            if b == 1:
                want = torch.tensor(np.array([row[rate] for row in rows]))
                assert error(memory_trace.series[rate][:, h], want) < EXACT
    assert {*rates_of_formula} <= {*memory_trace.rates}
    assert all(ranges[rate] == pytest.approx((min(values), max(values))) for rate, values in rates_of_formula.items())
    assert all(0 < low <= high < 1 for low, high in memory_trace.rate_ranges.values())


def one_head(record, index):
    return {} if record is None else {name: leaf[index].numpy() for name, leaf in record._asdict().items()}


def test_rates_of_memories_are_printed(capsys):
    model = LanguageModel(5, ["srwm", "lstm", "sum"], 8, num_layers=3, num_heads=2).eval()
    with record_scans(model) as scans:
        model(torch.randint(5, (1, 6)))
    lines = rates([analyze(scan) for scan in scans]).splitlines()
    assert lines[0] == "Rates over steps and heads:"
    (line,) = lines[1:]
    assert re.fullmatch(r"blocks\.0\.layer: (beta_(y|q|k|beta) 0\.\d\d to 0\.\d\d(, )?){4}", line), line
    assert rates([]) == ""


def fading(W: Matrix, k: Key, v: Value, rate: Rate) -> Matrix:
    """A rule with a decay."""
    return rate * W + torch.outer(v, k)


def test_written_and_forgotten_are_norms_of_changes():
    cell = Cell.from_function(fading)
    k, v = torch.eye(3, dtype=torch.float64)[None, :, None], torch.ones(1, 3, 1, 2, dtype=torch.float64)
    rate = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)[None, :, None]
    memory_trace, _, _ = contents(cell, (cell.Inputs(k, k, v, rate),))
    assert memory_trace.series["forgotten"][:, 0].tolist() == [0.0, 0.5, 1.0]
    assert error(memory_trace.series["written"][:, 0].square(), torch.tensor([2.0, 2.5, 4.5])) < EXACT
    assert memory_trace.series["rate"][:, 0].tolist() == [1.0, 0.5, 0.0]


def test_effective_rank_of_orthogonal_vectors_is_their_number():
    q = torch.linalg.qr(torch.randn(5, 3, dtype=torch.float64)).Q
    assert error(effective_rank(q @ q.T), torch.tensor(3.0)) < 1e-6
    assert effective_rank(torch.zeros(2, 4, 3)).tolist() == [0.0, 0.0]


def test_recording_changes_no_outputs_and_ends():
    model = LanguageModel(5, ["delta-net", "lstm", "srwm"], 8, num_layers=3, num_heads=2).eval()
    tokens = torch.randint(5, (2, 6))
    want, _ = model(tokens)
    with record_scans(model) as scans:
        got, _ = model(tokens)
        scan("sum", Cell.from_name("sum").Inputs(*torch.randn(3, 1, 2, 1, 4).unbind()))
    assert torch.equal(got, want)
    assert [recorded.name for recorded in scans] == ["blocks.0.layer", "blocks.2.layer"]
    model(tokens)
    assert len(scans) == 2


def test_recording_ends_after_an_error():
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


def test_page_of_inspect_is_self_contained(run, tmp_path, capsys):
    target = tmp_path / "page.html"
    words = "Dorothy (Toto) said so:\n"
    assert cli.main(["inspect", str(run), "--text", words, "--output", str(target)]) == 0
    assert "2 memories, 24 tokens" in capsys.readouterr().out
    text = target.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert "".join(data["tokens"]) == words
    assert {len(head) for memory in data["memories"] for head in memory["series"]["read"]} == {len(words)}


def test_texts_are_escaped_in_the_script():
    model = LanguageModel(3, "delta-net", 8, num_layers=1, num_heads=2).eval()
    with record_scans(model) as scans:
        model(torch.tensor([[0, 1]]))
    text = render_html([analyze(scans[0])], ["</script>", "<!--"], "a <b>")
    assert text.count("</script>") == 2
    assert "a &lt;b&gt;" in text


def test_inspect_rejects_models_without_memories(run):
    model = LanguageModel(99, "lstm", 8, num_layers=1, num_heads=2).eval()
    from fastweights import load

    with pytest.raises(InputError, match="model must be a model with a layer over a cell"):
        analyze_text(model, load(run).task, "a")
    with pytest.raises(InputError, match=r"tokens must be \d+ tokens, one per time step"):
        render_html(analyze_text(load(run).model, load(run).task, "ab")[0], ["a"], "title")
    assert cli.main(["inspect", str(run), "--text", ""]) == 2
