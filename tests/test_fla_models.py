"""Models of flash-linear-attention on a CPU: every class, with every kind of call."""

import logging
import sys
import warnings
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from fastweights.adapters.fla import disable, enable, load
from fastweights.adapters.fla.enabling import keeps_caches
from fastweights.core.errors import InputError
from fastweights.testing.tolerance import error, tolerance

has_fla = bool(find_spec("fla") and find_spec("triton") and find_spec("transformers"))
pytestmark = [
    pytest.mark.skipif(not has_fla, reason="needs flash-linear-attention, triton and transformers"),
    pytest.mark.filterwarnings("ignore"),
]
NAMES, UNSUPPORTED, SUPPORTED, INTERPRETED, LOSE_STATE, KEEPS_CACHES = [], {}, [], [], (), False
if has_fla:
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    import fla_models as models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        NAMES, UNSUPPORTED, LOSE_STATE = models.names(), models.UNSUPPORTED, models.LOSE_STATE
        KEEPS_CACHES = keeps_caches()
    SUPPORTED = [name for name in NAMES if name not in UNSUPPORTED]
    INTERPRETED = [name for name in SUPPORTED if name not in models.NOT_INTERPRETED]
needs_caches = pytest.mark.skipif(not KEEPS_CACHES, reason="its generate loses caches with this transformers")
CLOSE, CLOSE_GRADIENTS = tolerance(torch.float32)
T = 70
IGNORE_BOUNDARIES = ("ABC", "LinearAttention", "Mamba", "Mamba2")
"""Classes whose layers do not read `cu_seqlens`."""
READ_PADDING = ("ABC",)
"""Classes whose layers give weight to padded positions."""
LOADED = {
    "DeltaNet": [
        {},
        {"use_gate": True, "qk_activation": "elu", "qk_norm": "sum", "allow_neg_eigval": True},
        {"use_short_conv": False, "use_beta": False, "tie_word_embeddings": True},
    ],
    "GatedDeltaNet": [{}, {"num_v_heads": 4, "use_gate": False}],
    "GLA": [{}, {"use_short_conv": True, "num_kv_heads": 1, "clamp_min": -0.01}],
    "KDA": [{}, {"num_v_heads": 4, "safe_gate": True, "lower_bound": -5.0, "use_short_conv": False}],
}
"""Classes that `load` opens, with options of their configs."""


FAILURES = (ImportError, NotImplementedError, RuntimeError, TypeError, ValueError, AssertionError)


def train(name):
    """Computes the gradients of a small model."""
    tokens = models.tokens_of(20)
    models.small(name)(tokens, labels=tokens).loss.backward()


@pytest.fixture(autouse=True)
def enabled():
    enable()
    yield
    disable()


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_class_trains_and_runs_in_parts(name):
    """Gradients are finite. A prompt with cached steps has the logits of the whole sequence, for every row of a batch.

    The prompt of 17 tokens calls recurrent kernels, that of 67 tokens chunked ones.
    """
    model, tokens = models.small(name), models.tokens_of(T, 3)
    model.train()(tokens, labels=tokens).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        for length in (20, T):
            whole = model.eval()(tokens[:, :length], use_cache=False).logits
            steps = models.in_pieces(model, tokens[:, :length], [length - 3, 1, 1, 1])
            assert steps.isfinite().all()
            assert error(steps, whole) < CLOSE


@pytest.mark.parametrize("name", [name for name in SUPPORTED if name not in READ_PADDING])
def test_outputs_do_not_depend_on_padding_and_other_sequences(name):
    model, long, short = models.small(name), models.tokens_of(20), models.tokens_of(13)
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[0, :7] = 0
    with torch.no_grad():
        padded = model(torch.cat([torch.cat([long[:, :7] * 0, short], 1), long]), attention_mask=mask).logits
        assert error(padded[0, 7:], model(short).logits[0]) < CLOSE
        assert error(padded[1], model(long).logits[0]) < CLOSE
        if name not in IGNORE_BOUNDARIES:
            packed = model(torch.cat([long, short], 1), cu_seqlens=torch.tensor([0, 20, 33])).logits
            assert error(packed[0, 20:], model(short).logits[0]) < CLOSE


@needs_caches
@pytest.mark.parametrize("name", SUPPORTED)
def test_generate_is_greedy(name):
    model, tokens = models.small(name), models.tokens_of(9)
    fixed = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    generated = model.generate(tokens, attention_mask=torch.ones_like(tokens), **fixed)
    for _ in range(4):
        with torch.no_grad():
            tokens = torch.cat([tokens, model(tokens, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(generated, tokens)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_unsupported_class_does_not_run(name):
    assert name in NAMES
    with pytest.raises(FAILURES):
        train(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERPRETED)
def test_results_equal_those_of_the_original_kernels(name):
    """In float64, except for constants of the kernels that are rounded to float32."""
    errors = models.compared(name)
    assert errors.logits < CLOSE
    assert errors.steps < CLOSE
    assert errors.gradients < CLOSE_GRADIENTS


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(INTERPRETED) & set(LOSE_STATE)))
def test_original_kernels_lose_state(name):
    """Proof of a statement on the page: their four cached tokens differ from the same tokens in a whole sequence."""
    results = models.oracle(name, models.small(name).double().state_dict()).values()
    assert all(error(each.steps[:, -4:], each.logits[:, -4:]) > 0.1 for each in results)


@pytest.mark.parametrize(("name", "method"), [("Mamba", "slow_forward"), ("Mamba2", "torch_forward")])
def test_sequences_of_mamba_layers_equal_single_steps_of_the_original(name, method):
    """With two groups of heads in Mamba-2. The original reads other groups in a sequence."""
    import fla.layers

    sizes = {"Mamba": {"intermediate_size": 64}, "Mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 2}}[name]
    layer = getattr(fla.layers, name)(hidden_size=32, state_size=8, **sizes).double()
    forward = getattr(type(layer), method)
    x = torch.randn(2, 7, 32).double()
    y, *states = forward(layer, x, use_cache=True)
    last, outputs = [torch.zeros_like(state) for state in states], []
    for t in range(7):
        cache = dict(zip(("conv_state", "recurrent_state"), last, strict=True))
        step, *last = forward.__wrapped__(layer, x[:, [t]], cache, use_cache=True)
        outputs.append(step)
    assert error(y, torch.cat(outputs, 1)) < CLOSE  # fla's rates and norms are in float32
    for ours, theirs in zip(states, last, strict=True):
        assert error(ours, theirs) < CLOSE
    first, *states = forward(layer, x[:, :4], use_cache=True)
    rest = forward(layer, x[:, 4:], dict(zip(cache, states, strict=True)), use_cache=True)[0]
    assert error(torch.cat([first, rest], 1), y) < CLOSE


def test_mesa_net_equals_an_exact_solver():
    """A loop over time with an exact solver, in float32: conjugate gradients with K iterations are no more accurate.

    Kernels of the original round q, k and S to half precision.
    """
    from fastweights.adapters.fla.mesa import chunk_mesa_net

    def loop(q, k, v, g, beta, ridge):
        G, S, outputs = torch.zeros(16, 16).double(), torch.zeros(16, 16).double(), []
        for t in range(12):
            G = g[t].exp() * G + beta[t] * torch.outer(k[t], k[t])
            S = g[t].exp() * S + beta[t] * torch.outer(k[t], v[t])
            outputs.append(S.mT @ torch.linalg.solve(G + ridge.diag(), q[t]))
        return torch.stack(outputs)

    q, k = torch.nn.functional.normalize(torch.randn(2, 12, 16).double(), dim=-1)
    v, g, beta = torch.randn(12, 16).double(), -torch.rand(12).double(), torch.rand(12).double()
    inputs = [x.requires_grad_() for x in (q.clone(), k.clone(), v, g, beta, torch.rand(16).double() + 0.25)]
    expected = loop(*inputs)
    o, _, _ = chunk_mesa_net(*(x[None, :, None] for x in inputs[:5]), inputs[5][None])
    assert error(o[0, :, 0], expected) < CLOSE
    gradients = [torch.autograd.grad(y.square().sum(), inputs) for y in (o, expected)]
    assert all(error(x, y) < CLOSE_GRADIENTS for x, y in zip(*gradients, strict=True))


def test_abc_equals_averages_over_time():
    """A loop over time in float64, since the kernels of the original lose a part of the state."""
    from fastweights.adapters.fla.slot_attention import chunk_abc

    q, k, v, s = torch.randn(4, 1, 12, 2, 16).double()
    outputs = []
    for t in range(12):
        weights = s[0, : t + 1].softmax(0)
        P, Z = (torch.einsum("thm,thd->hmd", weights, x[0, : t + 1]) for x in (k, v))
        slots = torch.einsum("hmd,hd->hm", P, q[0, t] / 4).softmax(-1)
        outputs.append(torch.einsum("hm,hmd->hd", slots, Z))
    state, pieces = None, []
    for piece in (slice(0, 7), slice(7, 8), slice(8, 12)):
        o, state = chunk_abc(*(x[:, piece] for x in (q, k, v, s)), state, True)
        pieces.append(o)
    exact = tolerance(torch.float64).forward
    assert error(torch.cat(pieces, 1)[0], torch.stack(outputs)) < exact
    assert error(state[0][0], P.mT) < exact
    assert error(state[1][0], Z) < exact
    assert error(state[2][0], s[0].logsumexp(0)) < exact
    with pytest.raises(InputError, match="initial_state must be the tensors P, Z and z, got 2"):
        chunk_abc(q, k, v, s, state[:2])


def test_lightnet_equals_a_softmax_over_time():
    """A loop over time in float64, since the interpreter cannot run the original."""
    from fastweights.adapters.fla.gated_memories import chunk_lightnet

    q, k, v = torch.randn(3, 1, 12, 2, 16).double()
    S, sums, outputs = torch.zeros(2, 16, 16).double(), torch.zeros(2, 16).double(), []
    for t in range(12):
        before, sums = sums, sums + k[0, t].exp()
        S = (before / sums)[..., None] * S + (k[0, t].exp() / sums)[..., None] * v[0, t][:, None]
        outputs.append((q[0, t, :, None] @ S)[:, 0] / 4)
    o, state = chunk_lightnet(q[:, :7], k[:, :7], v[:, :7], output_final_state=True)
    rest, (last, _) = chunk_lightnet(q[:, 7:], k[:, 7:], v[:, 7:], initial_state=state, output_final_state=True)
    exact = tolerance(torch.float64).forward
    assert error(torch.cat([o, rest], 1)[0], torch.stack(outputs)) < exact
    assert error(last[0], S) < exact


@pytest.mark.parametrize(("name", "options"), [(name, more) for name, all in LOADED.items() for more in all])
class TestLoad:
    """A checkpoint as a `LanguageModel`."""

    @pytest.fixture
    def both(self, name, options, tmp_path, monkeypatch):
        monkeypatch.setitem(models.MORE, name, options)
        original = models.small(name)
        original.save_pretrained(tmp_path)
        return original, load(tmp_path)

    def test_logits_are_equal_also_in_parts(self, both):
        original, ours = both
        tokens, state, parts = models.tokens_of(30, 2), None, []
        with torch.no_grad():
            expected = original(tokens).logits
            for piece in tokens.split([7, 1, 22], 1):
                logits, state = ours(piece, state)
                parts.append(logits)
            assert error(torch.cat(parts, 1), expected) < CLOSE
            padded, _ = ours(tokens, lengths=torch.tensor([30, 12]))
            assert error(padded[1, :12], expected[1, :12]) < CLOSE

    @needs_caches
    def test_generated_tokens_are_equal(self, both):
        original, ours = both
        tokens = models.tokens_of(30, 2)
        expected = original.generate(tokens, max_new_tokens=4, do_sample=False, eos_token_id=None)[:, 30:]
        assert torch.equal(ours.generate(tokens, 4, temperature=0.0), expected)

    def test_gradients_are_equal(self, both):
        original, ours = both
        tokens = models.tokens_of(20)
        original(tokens, labels=tokens).loss.backward()
        losses, _ = ours(tokens[:, :-1], targets=tokens[:, 1:])
        losses.mean().backward()
        assert error(ours.embedding.weight.grad, original.get_input_embeddings().weight.grad) < CLOSE_GRADIENTS


def test_loaded_weights_keep_half_precision(tmp_path):
    model = models.small("DeltaNet").bfloat16()
    model.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    tokens = models.tokens_of(20)
    with torch.no_grad():
        exact = load(tmp_path).float()(tokens)[0]
        assert error(ours(tokens)[0].float(), exact) < 2 * error(model(tokens).logits.float(), exact)


def test_unsupported_checkpoint_is_rejected(tmp_path):
    with pytest.raises(InputError, match=r"path must be a folder with config\.json"):
        load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "rwkv7"}')
    with pytest.raises(InputError, match="model_type must be one of delta_net, gated_deltanet, gla, kda"):
        load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gla", "attn": {"layers": [1]}}')
    with pytest.raises(InputError, match="attn must be None"):
        load(tmp_path)


def test_disable_restores_every_function():
    import fla.layers
    import fla.ops.delta_rule
    from fla.modules.activations import ACT2FN

    disable()
    owners = (fla.ops.delta_rule, fla.layers.delta_net, fla.layers.Mamba, fla.layers.Mamba2)
    before = [dict(vars(owner)) for owner in owners] + [dict(ACT2FN)]
    model, tokens = models.small("DeltaNet"), models.tokens_of(20)
    with pytest.raises(RuntimeError, match="active drivers"):
        model(tokens)
    assert enable() == enable()
    assert deepcopy(model)(tokens).logits.isfinite().all()
    disable()
    disable()
    after = [dict(vars(owner)) for owner in owners] + [dict(ACT2FN)]
    assert all(one[key] is other[key] for one, other in zip(before, after, strict=True) for key in one)


def test_enable_does_not_replace_partial_functions():
    disable()
    from fla.ops.delta_rule import fused_recurrent_delta_rule

    partial_function = partial(fused_recurrent_delta_rule)
    enable()
    q, k, v = torch.randn(3, 1, 4, 2, 8).unbind()
    with pytest.raises(RuntimeError, match="active drivers"):
        partial_function(q, k, v)


def test_unsupported_arguments_on_a_cpu_are_rejected():
    from fla.ops.gla import fused_recurrent_gla
    from fla.ops.hgrn import chunk_hgrn
    from fla.ops.rwkv6 import fused_recurrent_rwkv6

    x = torch.rand(1, 4, 2, 8)
    with pytest.raises(
        InputError, match=r"reverse of fla\.ops\.rwkv6\.fused_recurrent\.fused_recurrent_rwkv6 must be None"
    ):
        fused_recurrent_rwkv6(x, x, x, -x, x[0, 0], reverse=True)
    assert fused_recurrent_gla(x, x, x, reverse=True)[0].shape == x.shape
    assert chunk_hgrn(x[..., 0], -x[..., 0])[1] is None


def test_unknown_function_is_left_alone_and_logged(monkeypatch, caplog):
    import fla.ops.delta_rule.chunk as module

    disable()

    def chunk_delta_rule(q, k, v, beta, more):
        """A function of a later version."""

    monkeypatch.setattr(module, "chunk_delta_rule", chunk_delta_rule)
    with caplog.at_level(logging.WARNING):
        replaced = enable()
    assert "fla.ops.delta_rule.chunk.chunk_delta_rule" not in replaced
    assert "fla.ops.delta_rule.chunk.chunk_delta_rule has unknown parameters" in caplog.text
    assert module.chunk_delta_rule is chunk_delta_rule
    disable()
