"""Models of transformers on this library's kernels: the same numbers, in small random models of every family."""

import functools
import inspect
import re
from importlib.util import find_spec

import pytest
import torch

from fastweights import functional
from fastweights.adapters.transformers import disable, enable, replacements
from fastweights.adapters.transformers.found import CONVOLUTION, MEMORIES, functions
from fastweights.core.errors import InputError
from fastweights.testing.tolerance import error, tolerance

if find_spec("transformers"):
    import transformers
    from packaging.version import Version

    from fastweights.adapters.transformers.state_cache import CACHE
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


def memories():
    """The functions that run a memory."""
    return [found for found in functions() if found.kind in MEMORIES]


def families():
    """The models for text of every module in which a function was found."""
    modules = {loop.module.__name__: loop.module for loop in memories()}
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
    decays = {"gated_delta_rule": (1, T, 2), "kimi_delta_attention": (1, T, 2, 6)}[loop.kind]
    v, g, beta = (
        torch.randn(1, T, 2, 8, dtype=dtype),
        -torch.rand(decays, dtype=dtype),
        torch.rand(1, T, 2, dtype=dtype),
    )
    return {"query": q, "key": k, "value": v, "g": g, "beta": beta}


def test_numbers_of_every_function_stay():
    """In modules, too, whose model takes more than text."""
    loops = memories()
    assert {*MEMORIES} == {*replacements.COMPUTED} >= {loop.kind for loop in loops}
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
        cache = getattr(model(tokens[:, :-3], use_cache=True), CACHE)
        steps = [model(tokens[:, [t]], **{CACHE: cache}, use_cache=True).logits for t in range(T - 3, T)]
        beams = model.generate(tokens, max_new_tokens=4, num_beams=2, do_sample=False)
    return torch.cat(steps, 1), beams


def test_numbers_of_every_family_stay(monkeypatch):
    found = list(families())
    assert len(found) >= 4, "Qwen3-Next, Qwen3.5 (dense and mixture) and OLMo-hybrid have been there since 5.6"
    runs, scan = [], functional.scan
    monkeypatch.setattr(functional, "scan", lambda *args, **options: runs.append(1) or scan(*args, **options))
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


def names_of(found):
    return [loop.path for loop in found]


def test_disable_puts_the_loops_back():
    before = list(functions())
    names = enable()
    assert enable() == names == names_of(before)
    assert not {loop.function for loop in before} & {loop.function for loop in functions()}
    disable()
    assert [loop.function for loop in functions()] == [loop.function for loop in before]


def test_models_made_in_between_go_back_to_their_loops():
    (first, *_) = memories()
    enable()
    kept = getattr(first.module, first.name)
    x = given(first, torch.float64)
    assert kept(**x, initial_state=None, output_final_state=True)[1].dtype == torch.float64
    disable()
    assert kept(**x, initial_state=None, output_final_state=True)[1].dtype == torch.float32, "as their loop has it"


def test_random_numbers_of_the_user_stay():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    with torch.no_grad():
        enable()
    assert torch.equal(torch.rand(3), wanted)


def test_a_version_that_is_too_old_changes_nothing(monkeypatch):
    before = [loop.function for loop in functions()]
    monkeypatch.setattr("transformers.__version__", "4.57.1")
    with pytest.raises(InputError, match=r"transformers must be of a version >=.*, got 4.57.1"):
        enable()
    assert [loop.function for loop in functions()] == before


@pytest.mark.parametrize("version", ["5.99.0", "6.1.0.dev0"])
def test_an_unknown_version_whose_functions_do_the_same_is_taken(monkeypatch, version):
    monkeypatch.setattr("transformers.__version__", version)
    assert enable() == names_of(functions())


def changed(function, change):
    """The function with other results, and the same arguments."""

    @functools.wraps(inspect.unwrap(function))
    def other(*args, **options):
        return change(*inspect.unwrap(function)(*args, **options))

    del other.__wrapped__
    other.__signature__ = inspect.signature(function)
    return other


def fails(o, last):
    raise RuntimeError("the states\nare of another shape")


CHANGES = {
    "values": (lambda o, last: (2 * o, last), "as in .*, got other numbers"),
    "state": (lambda o, last: (o, last.transpose(2, 3)), "as in .*, got other numbers"),
    "gradients": (lambda o, last: (o + (o - o.detach()), last), "as in .*, got other numbers"),
    "half of the results": (lambda o, last: (o, None), r"got AttributeError \("),
    "failure": (fails, r"got RuntimeError \(the states are of another shape\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_function_that_does_something_else_is_named_and_keeps_its_place(monkeypatch, caplog, change):
    *_, last = memories()
    monkeypatch.setattr(last.module, last.name, changed(last.function, CHANGES[change][0]))
    kept = getattr(last.module, last.name)
    names = enable()
    assert getattr(last.module, last.name) is kept
    assert names == [name for name in names_of(functions()) if name != last.path]
    (said,) = caplog.messages
    assert re.match(rf"{re.escape(last.path)} must be .*{CHANGES[change][1]}", said)
    assert "\n" not in said


def test_a_function_with_other_arguments_is_named_and_keeps_its_place(monkeypatch, caplog):
    for found in {f.kind: f for f in functions()}.values():
        disable()
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(found.module, found.name, lambda queries, keys: None)
            assert found.path not in enable()
            (said,) = caplog.messages
            assert re.match(rf"{re.escape(found.path)} must be a function of .*, got queries, keys\.", said)


def packings(documents):
    """Every way to mark documents that are packed into one row."""
    ends = torch.tensor([0, *torch.tensor([len(d) for d in documents]).cumsum(0)], dtype=torch.int32)
    numbers = torch.cat([torch.full_like(d, n) for n, d in enumerate(documents)])[None].int()
    both = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 6, "max_length_k": 6}
    return {"ends": both, "numbers": {"seq_idx": numbers}, "all": {**both, "seq_idx": numbers}}


@pytest.mark.parametrize("marks", ["ends", "numbers", "all"])
def test_packed_documents_train_as_each_alone(marks):
    """In every family whose layers are told of packing: the convolution, the memory and attention keep them apart."""
    enable()
    documents = [torch.randint(2, 50, (n,)) for n in (4, 1, 6)]
    given = {"position_ids": torch.cat([torch.arange(len(d)) for d in documents])[None], **packings(documents)[marks]}
    replaced = {found.module.__name__ for found in functions() if found.kind == CONVOLUTION}
    tried = [family for family in families() if family.__module__ in replaced]
    assert tried or Version(transformers.__version__) < Version("5.17")
    for family in tried:
        torch.manual_seed(1)
        model = small(family).train()
        tokens = torch.cat(documents)[None]
        packed = model(tokens, use_cache=False, **given).logits
        alone = torch.cat([model(d[None], use_cache=False).logits for d in documents], 1)
        assert error(packed, alone) < CLOSE, family.__name__
        direction = torch.randn_like(alone)
        learned = [p for p in model.parameters() if p.requires_grad]
        pairs = [torch.autograd.grad((x * direction).sum(), learned, allow_unused=True) for x in (packed, alone)]
        for one, other in zip(*pairs, strict=True):
            assert one is None or error(one, other, least=1e-3) < CLOSE, family.__name__


def test_packed_sequences_stay_apart():
    """Which the loops in PyTorch refuse."""
    loops = {loop.kind: loop for loop in memories()}
    enable()
    for loop in loops.values():
        x, ours = given(loop), getattr(loop.module, loop.name)
        apart = [ours(**{name: y[:, a:b] for name, y in x.items()})[0] for a, b in ((0, 4), (4, T))]
        numbers = (torch.arange(T) >= 4).int()[None]
        for marks in ({"cu_seqlens": torch.tensor([0, 4, T])}, {"seq_idx": numbers}):
            assert error(ours(**x, **marks)[0], torch.cat(apart, 1)) < CLOSE


def test_rows_of_packed_sequences_have_states_of_their_own():
    """A row starts from its state, and ends with that of its last sequence."""
    loops = {loop.kind: loop for loop in memories()}
    enable()
    for loop in loops.values():
        ours, x = getattr(loop.module, loop.name), {name: torch.cat([y, y.flip(1)]) for name, y in given(loop).items()}
        start, cuts = torch.randn(2, 2, 6, 8), (4, 7)
        numbers = torch.stack([(torch.arange(T) >= cut).int() for cut in cuts])
        o, last = ours(**x, initial_state=start, output_final_state=True, seq_idx=numbers)
        for row, cut in enumerate(cuts):
            first = ours(**{n: y[[row], :cut] for n, y in x.items()}, initial_state=start[[row]])[0]
            second, end = ours(**{n: y[[row], cut:] for n, y in x.items()}, output_final_state=True)
            assert error(o[[row]], torch.cat([first, second], 1)) < CLOSE
            assert error(last[[row]], end) < CLOSE


@pytest.mark.parametrize("rows", [1, 2])
def test_convolutions_of_packed_sequences_see_no_other(rows):
    """Columns that a cache puts in front belong to the first sequence of a row."""
    enable()
    for found in (f for f in functions() if f.kind == CONVOLUTION):
        ours, x, weight, bias = (
            getattr(found.module, found.name),
            torch.randn(rows, 3, T),
            torch.randn(3, 4),
            torch.randn(3),
        )
        cuts, front = (4, 7)[:rows], torch.randn(rows, 3, 4)
        numbers = torch.stack([(torch.arange(T) >= cut).int() for cut in cuts])
        marks = [{"seq_idx": numbers}, *([{"cu_seq_lens_q": torch.tensor([0, 4, T])}] if rows == 1 else [])]
        for before in (x[:, :, :0], front):
            whole = torch.cat([before, x], 2)
            for mark in marks:
                got = ours(whole, weight, bias, activation="silu", **mark)[:, :, -T:]
                for row, cut in enumerate(cuts):
                    start = before.shape[2] + cut
                    first, second = whole[[row], :, :start], whole[[row], :, start:]
                    wanted = [found.function(part, weight, bias, activation="silu") for part in (first, second)]
                    assert error(got[[row]], torch.cat(wanted, 2)[:, :, -T:]) < CLOSE, found.path
