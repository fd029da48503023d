"""Sampling of tokens compared with enumeration."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastweights import InputError, LanguageModel
from fastweights.models._sampling import Sampling
from fastweights.testing.tolerance import error, tolerance

EXACT = tolerance(torch.float64).forward

logits = st.lists(st.floats(-30, 30) | st.sampled_from([0.0, 1.0, -math.inf]), min_size=1, max_size=9)
logits = logits.filter(lambda row: max(row) > -math.inf)
# Two logits that differ by less than a small temperature have similar probabilities.
NORMAL_LOGITS = logits.map(lambda row: [round(x, 6) if math.isfinite(x) else x for x in row])


def enumerated(row, temperature, top_k, top_p):
    """Probabilities in plain Python: sort, truncate, normalise."""
    best = max(row)
    weights = [math.exp((x - best) / temperature) if x > -math.inf else 0.0 for x in row]
    total = sum(weights)
    order = sorted(range(len(row)), key=lambda token: (-weights[token], token))[:top_k]
    mass = sum(weights[token] for token in order)
    nucleus, reached = [], 0.0
    for token in order:
        if reached >= top_p * mass and top_p < 1:
            break
        nucleus.append(token)
        reached += weights[token]
    assert total > 0
    return [weights[token] / reached if token in nucleus else 0.0 for token in range(len(row))]


@given(logits, st.floats(0.05, 20), st.none() | st.integers(1, 10), st.floats(0.01, 1))
@settings(max_examples=200)
def test_probabilities_equal_enumeration(row, temperature, top_k, top_p):
    want = enumerated(row, temperature, top_k, top_p)
    # Rounding matters if a sum of probabilities is nearly top_p. The neighbouring values show whether it does.
    near = [enumerated(row, temperature, top_k, min(1.0, top_p * (1 + off))) for off in (-1e-9, 1e-9)]
    got = Sampling(temperature, top_k, top_p).probabilities(torch.tensor(row, dtype=torch.float64))
    if near[0] == near[1]:
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))


@given(NORMAL_LOGITS, st.sampled_from([0.0, 5e-324, 1e-320, 1e-40]))
def test_small_temperatures_are_greedy(row, temperature):
    got = Sampling(temperature).probabilities(torch.tensor(row))
    best = torch.tensor(row) == torch.tensor(row).max()
    if temperature == 0:
        best = torch.arange(len(row)) == best.int().argmax()  # the lowest index of equal logits
    torch.testing.assert_close(got, best.float() / best.sum())


@given(logits, st.sampled_from([math.inf, 1e300]))
def test_large_temperatures_are_uniform(row, temperature):
    possible = torch.tensor(row) > -math.inf
    got = Sampling(temperature).probabilities(torch.tensor(row))
    torch.testing.assert_close(got, possible.float() / possible.sum())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_refused(bad):
    with pytest.raises(InputError, match="logits must be finite"):
        Sampling().draw(torch.tensor([[0.0, bad]]), None)


@pytest.mark.parametrize(
    ("option", "value"),
    [("temperature", -0.1), ("temperature", math.nan), ("top_k", 0), ("top_k", 1.5), ("top_p", 0.0), ("top_p", 1.1)],
)
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(InputError, match=f"{option} must be"):
        Sampling(**{option: value})


N = 7


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return LanguageModel(N, "delta-net", d_model=16, num_layers=2, num_heads=2).double().eval()


def test_frequencies_of_drawn_tokens_equal_the_probabilities(model):
    """Counts of 2000 draws, within five standard deviations."""
    prompt, draws = torch.tensor([[1, 2, 3]]), 2000
    p = Sampling(0.7, 5, 0.8).probabilities(model(prompt)[0][0, -1])
    drawn = model.generate(prompt.expand(draws, -1), 1, 0.7, seed=1, top_k=5, top_p=0.8)
    counts = torch.bincount(drawn.flatten(), minlength=N)
    assert 1 < (p > 0).sum() < N
    assert ((counts - draws * p).abs() <= 5 * (draws * p * (1 - p)).sqrt()).all()


def test_top_k_of_1_is_greedy(model):
    prompt = torch.randint(N, (3, 4))
    greedy = model.generate(prompt, 6, temperature=0)
    assert torch.equal(model.generate(prompt, 6, top_k=1), greedy)
    assert torch.equal(model.generate(prompt, 6, top_p=1e-9), greedy)
    assert torch.equal(model.generate(prompt, 6, temperature=1e-320), greedy)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_generation_is_reproducible_with_its_seed(model, seed):
    prompt = torch.randint(N, (2, 4))
    one, other = (model.generate(prompt, 20, seed=seed, top_p=0.9) for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, model.generate(prompt, 20, seed=seed // 2 + 1, top_p=0.9))


def test_a_sequence_stops_after_its_end_token(model):
    prompt = torch.randint(N, (8, 3))
    free = model.generate(prompt, 30, temperature=0)
    end = free[0, 4].item()
    ended = model.generate(prompt, 30, temperature=0, eos_token_id=end)
    stops = [row.tolist().index(end) if end in row else 30 for row in free]
    assert ended.shape[1] == min(30, max(stops) + 1)
    for mine, theirs, stop in zip(ended, free, stops, strict=True):
        assert torch.equal(mine[: stop + 1], theirs[: min(stop + 1, ended.shape[1])])
        assert (mine[stop + 1 :] == end).all()


def test_generation_continues_from_a_state(model):
    tokens = torch.randint(N, (2, 9))
    _, state = model(tokens[:, :5])
    assert torch.equal(model.generate(tokens[:, 5:], 8, seed=1, state=state), model.generate(tokens, 8, seed=1))


def test_streams_generate_lazily(model):
    stream = model.stream(torch.tensor([[1]]), 10**9)
    assert next(stream).shape == (1, 1)
    assert not next(stream).requires_grad


MEMORIES = {
    "a matrix": {"layer": "delta-net"},
    "behind a convolution": {"layer": "gated-delta", "conv_size": 3},
    "recurrent": {"layer": "lstm"},
    "a cache": {"layer": "softmax-attention", "options": {"window_size": 5}},
    "positions": {"layer": ["delta-net", "irnn"], "positions": "ascending"},
}
SETTINGS = [
    {"temperature": 0},
    {"seed": 11},
    {"seed": 2**64 - 2, "top_k": 4, "top_p": 0.9},
    {"seed": 3, "eos_token_id": 2},
]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("settings_of_sampling", SETTINGS, ids=str)
def test_prompts_of_different_lengths_are_continued_as_alone(memory, settings_of_sampling):
    """Row b of a batch equals the generation from its prompt alone with a seed that is larger by b."""
    torch.manual_seed(1)
    model = LanguageModel(N, d_model=16, num_layers=2, num_heads=2, **MEMORIES[memory]).double().eval()
    lengths, earlier = torch.tensor([1, 4, 9, 2]), torch.randint(N, (4, 3))
    tokens = torch.randint(N, (4, 9)).where(torch.arange(9) < lengths.unsqueeze(1), 10**9)
    for state in (None, model(earlier)[1]):
        together = model.generate(tokens, 12, **settings_of_sampling, state=state, lengths=lengths)
        for b, length in enumerate(lengths):
            own = (
                {**settings_of_sampling, "seed": (settings_of_sampling["seed"] + b) % 2**64}
                if "seed" in settings_of_sampling
                else settings_of_sampling
            )
            alone = model.generate(
                tokens[b : b + 1, :length], 12, **own, state=None if state is None else state.select([b])
            )
            assert torch.equal(together[b, : alone.shape[1]], alone[0])
            assert set(together[b, alone.shape[1] :].tolist()) <= {settings_of_sampling.get("eos_token_id")}


@pytest.mark.parametrize("lengths", [torch.tensor([0, 2]), torch.tensor([1, 4]), torch.tensor([1]), [1, 2]], ids=str)
def test_invalid_lengths_are_refused(model, lengths):
    with pytest.raises(InputError, match="lengths must be"):
        model.stream(torch.zeros(2, 3, dtype=torch.long), 4, lengths=lengths)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("eos_token_id", N),
        ("eos_token_id", -1),
        ("seed", -1),
        ("seed", 2**70),
        ("max_new_tokens", -1),
        ("eos_token_id", 1.5),
        ("seed", 1.5),
        ("max_new_tokens", 2.5),
        ("temperature", "hot"),
        ("top_p", None),
    ],
)
def test_invalid_options_are_refused_before_generation(model, option, value):
    with pytest.raises(InputError, match=f"{option} must be"):
        model.stream(torch.tensor([[1]]), **{"max_new_tokens": 3, option: value})


def generate_in_one_call(model, length=12, **settings_of_sampling):
    return torch.cat(list(model.stream(torch.tensor([[1, 2, 3]]), length, **settings_of_sampling)), dim=1)


@pytest.mark.parametrize("layer", ["delta-net", "lstm", "softmax-attention", "srwm"])
@pytest.mark.parametrize("settings_of_sampling", [{"temperature": 0.0}, {"seed": 5}, {"seed": 5, "top_k": 3}], ids=str)
@pytest.mark.parametrize("cut", [1, 5, 11])
def test_generation_resumes_from_a_saved_state(layer, settings_of_sampling, cut, tmp_path):
    torch.manual_seed(0)
    model = LanguageModel(9, layer, 16, num_layers=2, num_heads=2).eval()
    whole = generate_in_one_call(model, **settings_of_sampling)
    first = model.stream(torch.tensor([[1, 2, 3]]), cut, **settings_of_sampling)
    tokens = list(first)
    first.state.save(tmp_path / "text.safetensors")
    other = LanguageModel(9, layer, 16, num_layers=2, num_heads=2).eval()
    other.load_state_dict(model.state_dict())
    rest = {name: value for name, value in settings_of_sampling.items() if name != "seed"}
    more = other.stream(None, 12 - cut, state=other.load(tmp_path / "text.safetensors"), **rest)
    assert torch.equal(torch.cat([*tokens, *more], dim=1), whole)
    none = other.generate(None, 0, state=other.load(tmp_path / "text.safetensors"))
    assert none.shape == (1, 0)


def test_several_prompts_continue_one_state():
    torch.manual_seed(0)
    model = LanguageModel(9, "delta-net", 16, num_layers=2, num_heads=2).eval()
    stream = model.stream(torch.tensor([[1, 2, 3]]), 4, seed=1)
    tokens = torch.cat(list(stream), dim=1)
    prompt = torch.tensor([[4, 5], [6, 7], [4, 5]])
    forked = model.generate(prompt, 6, temperature=0.0, state=stream.state.select([0, 0, 0]))
    for row, mine in zip(prompt, forked, strict=True):
        alone = torch.cat([torch.tensor([1, 2, 3]), tokens[0], row])[None]
        assert torch.equal(model.generate(alone, 6, temperature=0.0)[0], mine)


def test_the_state_is_unavailable_before_the_first_token():
    model = LanguageModel(9, "delta-net", 16, num_layers=1, num_heads=2)
    with pytest.raises(InputError, match="state must be read after a token"):
        _ = model.stream(torch.tensor([[1, 2]]), 3).state
    with pytest.raises(InputError, match="prompt must be given"):
        model.stream(None, 3)


def test_generation_without_a_seed_uses_the_global_seed():
    model = LanguageModel(9, "delta-net", 16, num_layers=1, num_heads=2).eval()
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(generate_in_one_call(model, length=30))
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


@pytest.mark.parametrize("every", [1, 3, 7, 20])
@pytest.mark.parametrize("layer", ["delta-net", "softmax-attention", "lstm"])
def test_snapshots_are_states_after_every_few_tokens(layer, every):
    model = LanguageModel(5, layer, d_model=16, num_layers=2, num_heads=2).double().eval()
    tokens, more = torch.randint(5, (2, 7)), torch.randint(5, (2, 4))
    snapshots = dict(model.snapshots(tokens, every))
    assert sorted(snapshots) == sorted({*range(every, 7, every), 7})
    for place, state in snapshots.items():
        want, _ = model(torch.cat([tokens[:, :place], more], dim=1))
        assert error(model(more, state)[0], want[:, place:]) < EXACT


def test_snapshots_need_at_least_one_token(model):
    with pytest.raises(InputError, match="every must be"):
        next(model.snapshots(torch.zeros(1, 3, dtype=torch.long), 0))
