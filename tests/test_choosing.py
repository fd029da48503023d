"""Statements of docs/getting-started/choosing-a-layer.md about layers hold. Its comparison has the best rates."""

from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch.nn.functional import one_hot

from fastweights import Cell, scan
from fastweights.dispatch import explain
from fastweights.feature_maps.elu import positive
from fastweights.layers import make_layer
from fastweights.recipes.abilities import rate_of
from fastweights.registry import RULES, descriptions
from fastweights.testing import scan_checks
from fastweights.testing.tolerance import error, tolerance
from fastweights.training.run_folder.runs_file import packed_runs

EXACT = tolerance(torch.float64).forward
K = 4
VALUE_OF_ROLE = {"rate": 1.0, "decay": 0.5}


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def after(rule, keys, values, W=None):
    """The weights after writes of values `[T, V]` to keys `[T, K]` with rate 1 and decay 1/2."""
    cell = Cell.from_name(rule)
    sizes = {"K": keys.shape[-1], "V": values.shape[-1]}

    def input_of(slot):
        tensors = {"key": keys, "value": values}
        full = torch.full((len(keys), *slot.shape(sizes)), VALUE_OF_ROLE.get(slot.role, 0), dtype=keys.dtype)
        return tensors.get(slot.role, full)[None, :, None]

    x = cell.Inputs(*map(input_of, cell.slots["Inputs"].values()))
    state = None if W is None else cell.State(W[None, None])
    return scan(cell, x, state, backend="reference")[1].W[0, 0]


@pytest.mark.parametrize("rule", RULES.names())
def test_rule_overwrites_and_fades_only_with_these_abilities(rule):
    """Two writes to one key replace its old value only; other values are unchanged, or fade.

    Keys without normalisation may be long, and some rules need long keys to overwrite.
    """
    abilities = descriptions("rules")[rule].abilities
    k, other = torch.linalg.qr(numbers(K, K)).Q[:2]
    long = k * (8 if Cell.from_name(rule).key_maps.qk_norm == "none" else 1)
    old, new, other_value = numbers(3, 5) / 4
    once = after(rule, long[None], new[None])
    W = after(rule, torch.stack([long, long]), torch.stack([old, new]))
    replaced = error(W @ k, once @ k) < 1e-9
    W = torch.outer(other_value, other)
    size = torch.linalg.vector_norm(after(rule, k[None], new[None], W) @ other) / torch.linalg.vector_norm(other_value)
    assert (size < 1 - 1e-9) == ("fade" in abilities)
    assert (replaced and size > 1e-9) == ("overwrite" in abilities)


@pytest.mark.parametrize("associations", [K - 1, K, K + 1, 3 * K])
def test_sum_rule_fails_beyond_its_key_size(associations):
    """Reads with S keys have at most the rank K: of S linearly independent values at least S - K are lost."""
    keys = torch.eye(K, dtype=torch.float64).repeat(associations, 1)[:associations]
    if associations > K:
        keys = positive(numbers(associations, K))
    values = one_hot(torch.arange(associations)).double()
    loss = (keys @ after("sum", keys, values).T - values).square().sum()
    assert loss >= associations - K - 1e-9
    assert associations > K or loss < 1e-9


def test_outputs_grow_for_the_sum_rule_and_not_for_linear_attention():
    x = numbers(1, 1, 8).expand(1, 64, 8)
    sums, averages = (
        make_layer(name, 8, num_heads=2).double()(x)[0][0].norm(dim=-1) for name in ("sum", "linear-attention")
    )
    assert error(sums, sums[0] * torch.arange(1, 65)) < EXACT
    assert averages.max() < 1.001 * averages.min()


@pytest.mark.parametrize("backend", ["reference", "chunkwise", "compiled"])
def test_rates_up_to_2_count_parity_in_parallel(backend):
    """W <- W - beta W k k^T with k = 1: beta = 2 flips the sign; a rate up to 1 does not."""
    cell, bits = Cell.from_name("delta"), torch.randint(2, (3, 50, 1)).double()
    one = torch.ones(3, 50, 1, 1, dtype=torch.float64)
    start = cell.State(one[:, :1])
    y, _ = scan(cell, cell.Inputs(one, one, 0 * one, 2 * bits), start, backend=backend)
    assert error(y[..., 0], 1 - 2 * (bits.cumsum(1) % 2)) < EXACT
    y, _ = scan(cell, cell.Inputs(one, one, 0 * one, torch.rand_like(bits)), start, backend=backend)
    assert (y >= 0).all()


def test_recurrent_and_self_modifying_cells_need_a_loop_over_time():
    cells = [
        name
        for name, description in descriptions("cells").items()
        if {"recur", "modify itself"} & set(description.abilities)
    ]
    assert len(cells) > 8
    for cell in map(Cell.from_name, cells):
        a = scan_checks.arguments(cell, scan_checks.ODD)
        form = explain(cell, a.inputs, a.state, a.params).reasons["chunkwise"]
        assert form.startswith("cannot") or "step by step" in form, cell.name
    delta, x = Cell.from_name("delta"), numbers(1, 5, 1, 4)
    reasons = explain(delta, delta.Inputs(x, x, x, x[..., 0])).reasons
    assert reasons["chunkwise"] == "could run: W <- W - W e f^T + v k^T"


def test_attention_depends_on_its_window_only():
    layer, x = make_layer("softmax-attention", 8, num_heads=2, window_size=5).double(), numbers(1, 12, 8)
    changed = x.clone()
    changed[:, 3] += 1
    differs = (layer(x)[0] - layer(changed)[0]).abs().amax(-1)[0] > 1e-9
    assert differs.tolist() == [3 <= t < 8 for t in range(12)]
    assert layer.initial_state(1).k.shape[1] == 5


def test_rates_of_the_comparison_are_the_best_of_their_search():
    """The best mean on validation data in the committed runs, of rates with all seeds."""
    search = Path(__file__).parents[1] / "docs" / "results" / "abilities-rates"
    scores = defaultdict(lambda: defaultdict(list))
    for path in search.glob("*/runs.jsonl"):
        for run in packed_runs(path.parent).values():
            config = run.config()["config"]
            scores[config["model"]][float(config["column"])].append(run.result().validation["accuracy"])
    assert scores
    for row, by_rate in scores.items():
        seeds = max(map(len, by_rate.values()))
        means = {rate: fmean(values) for rate, values in by_rate.items() if len(values) == seeds}
        assert means[rate_of(*row.split("+"))] == max(means.values()), row
