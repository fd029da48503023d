"""Models of transformers on this library's kernels: the same numbers, in small random models of every family."""

import inspect
from importlib.util import find_spec

import pytest
import torch

from fastweights.adapters.transformers import disable, enable, kernels
from fastweights.errors import InputError
from fastweights.testing.tolerance import error, tolerance

pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="needs fastweights[transformers]")
CLOSE = tolerance(torch.float32).forward
T = 11
SIZES = {
    **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16, "head_dim": 16},
    **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
    **{"linear_key_head_dim": 6, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"shared_expert_intermediate_size": 16, "num_experts_per_tok": 2, "num_experts": 4, "num_local_experts": 4},
    **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8, "hc_lowrank": 8},
    **{"linear_head_dim": 8, "linear_num_heads": 2, "kv_lora_rank": 8, "q_lora_rank": None, "qk_rope_head_dim": 8},
    **{"qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 1, "topk_group": 1, "num_mtp_layers": 0},
    **{"indexer_compress_ratio": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None},
    **{"layer_types": ["linear_attention", "full_attention"]},
}
"""What makes a model small, in the names that the families have for it; K and V of the memory differ."""


@pytest.fixture(autouse=True)
def put_back():
    yield
    disable()


def families():
    """The models for text of every module in which a function was found."""
    modules = {loop.module.__name__: loop.module for loop in kernels._loops()}
    for module in modules.values():
        own = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        yield from (c for c in own if c.__name__.endswith("ForCausalLM"))


def small(family):
    known = inspect.signature(family.config_class).parameters
    # Latent attention has keys and values for every head.
    sizes = SIZES | {"num_key_value_heads": SIZES["num_attention_heads"]} if "kv_lora_rank" in known else SIZES
    return family(family.config_class(**{name: size for name, size in sizes.items() if name in known})).eval()


def given(loop, dtype=torch.float32):
    """Random arguments of a function: what all have, and decays of heads or of features."""
    q, k = torch.randn(2, 1, T, 2, 6, dtype=dtype)
    decays = {"gated_delta_rule": (1, T, 2), "kimi_delta_attention": (1, T, 2, 6)}[loop.memory]
    v, g, beta = (
        torch.randn(1, T, 2, 8, dtype=dtype),
        -torch.rand(decays, dtype=dtype),
        torch.rand(1, T, 2, dtype=dtype),
    )
    return {"query": q, "key": k, "value": v, "g": g, "beta": beta}


def test_numbers_of_every_function_stay():
    """In modules, too, whose model takes more than text."""
    loops = list(kernels._loops())
    assert {loop.memory for loop in loops} <= {*kernels.MEMORIES}
    enable()
    for loop in loops:
        ours, x, start = getattr(loop.module, loop.name), given(loop), torch.randn(1, 2, 6, 8)
        for unit in (False, True):
            options = {"initial_state": start, "output_final_state": True, "use_qk_l2norm_in_kernel": unit}
            x["key"] = x["key"] if unit else torch.nn.functional.normalize(x["key"], dim=-1)
            for got, want in zip(ours(**x, **options), loop.function(**x, **options), strict=True):
                assert error(got, want) < CLOSE, f"{loop.module.__name__}.{loop.name}"


def learn(model, tokens):
    """Logits, and the gradients of their loss for all that learns."""
    result = model(tokens, labels=tokens, use_cache=False)
    model.zero_grad()
    result.loss.backward()
    return result.logits, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def decode(model, tokens):
    """Logits of the last steps, taken one by one from a cache, and what beam search continues with."""
    with torch.no_grad():
        cache = model(tokens[:, :-3], use_cache=True).past_key_values
        steps = [model(tokens[:, [t]], past_key_values=cache, use_cache=True).logits for t in range(T - 3, T)]
        beams = model.generate(tokens, max_new_tokens=4, num_beams=2, do_sample=False)
    return torch.cat(steps, 1), beams


def test_numbers_of_every_family_stay(monkeypatch):
    found = list(families())
    assert len(found) >= 4, "Qwen3-Next, Qwen3.5 (dense and mixture) and OLMo-hybrid have been there since 5.6"
    runs, scan = [], kernels.functional.scan
    monkeypatch.setattr(kernels.functional, "scan", lambda *args, **options: runs.append(1) or scan(*args, **options))
    tokens = torch.randint(2, 50, (2, T))
    for family in found:
        disable()
        torch.manual_seed(1)
        model = small(family)
        (logits, gradients), (steps, beams) = learn(model, tokens), decode(model, tokens)
        assert not runs
        enable()
        torch.manual_seed(1)
        model = small(family)  # once more: to 5.16 a model looks its functions up when it is made
        (ours, our_gradients), (our_steps, our_beams) = learn(model, tokens), decode(model, tokens)
        assert len(runs) >= 5, f"{family.__name__}: training, prefill and every step are ours"
        runs.clear()
        assert error(ours, logits) < CLOSE, family.__name__
        assert error(our_steps, steps) < CLOSE, family.__name__
        assert torch.equal(our_beams, beams), family.__name__
        assert our_gradients.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert error(our_gradients[name], gradient, least=1e-3) < CLOSE, f"{family.__name__}: {name}"


def test_disable_puts_the_loops_back():
    before = [loop.function for loop in kernels._loops()]
    names = enable()
    assert enable() == names
    assert len(names) == len(before)
    assert not {*before} & {loop.function for loop in kernels._loops()}
    disable()
    assert [loop.function for loop in kernels._loops()] == before


def test_models_made_in_between_go_back_to_their_loops():
    (first, *_) = kernels._loops()
    enable()
    kept = getattr(first.module, first.name)
    x = given(first, torch.float64)
    assert kept(**x, initial_state=None, output_final_state=True)[1].dtype == torch.float64
    disable()
    assert kept(**x, initial_state=None, output_final_state=True)[1].dtype == torch.float32, "as their loop has it"


def test_an_unknown_version_changes_nothing(monkeypatch):
    before = [loop.function for loop in kernels._loops()]
    monkeypatch.setattr("transformers.__version__", "4.57.1")
    with pytest.raises(InputError, match=r"transformers must be of a version >=.*, got 4.57.1"):
        enable()
    assert [loop.function for loop in kernels._loops()] == before


def test_a_function_with_other_arguments_changes_nothing(monkeypatch):
    *_, last = kernels._loops()
    monkeypatch.setattr(last.module, last.name, lambda queries, keys: None)
    before = [loop.function for loop in kernels._loops()]
    with pytest.raises(InputError, match=rf"{last.name} must be a function of query, key, .*, got queries, keys"):
        enable()
    assert [loop.function for loop in kernels._loops()] == before


def test_packed_sequences_stay_apart():
    """Which the loops in PyTorch refuse."""
    loops = {loop.memory: loop for loop in kernels._loops()}
    enable()
    for loop in loops.values():
        x, ours = given(loop), getattr(loop.module, loop.name)
        packed, _ = ours(**x, cu_seqlens=torch.tensor([0, 4, T]))
        apart = [ours(**{name: y[:, a:b] for name, y in x.items()})[0] for a, b in ((0, 4), (4, T))]
        assert error(packed, torch.cat(apart, 1)) < CLOSE
