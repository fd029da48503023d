"""Models of transformers with our kernels: small random models of every family have the same results."""

import functools
import inspect
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from fastweights import dispatch, functional
from fastweights.adapters.transformers import disable, enable, replacement
from fastweights.adapters.transformers.found import functions
from fastweights.adapters.transformers.memories import convolution, delta_rules, selective_scan, ssd
from fastweights.adapters.transformers.table import TABLE
from fastweights.backends.chunkwise import chunks
from fastweights.compiler.targets.cpp import toolchain
from fastweights.core.errors import InputError
from fastweights.testing.tolerance import error, tolerance

if find_spec("transformers"):
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    import transformers
    from packaging.version import Version

    from hugging_face import ALONE
    from recurrent_models import Comparison, Numbers, attempt, families, learn
pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="needs fastweights[transformers]")
CLOSE, CLOSE_GRADIENTS = tolerance(torch.float32)
CONVOLUTIONS = (convolution.CONVOLUTION, convolution.NEXT_TO_MAMBA)
STEPS = (convolution.UPDATE, selective_scan.STEP, ssd.STEP)
"""Functions that change a state in place, without gradients."""
T = 11


@pytest.fixture(autouse=True)
def disabled_afterwards():
    yield
    disable()


@pytest.fixture
def calls():
    """Recorded calls of `scan`."""
    calls = []
    dispatch.WATCHERS.append(calls.append)
    yield calls
    dispatch.WATCHERS.remove(calls.append)


def one_per_row():
    """First function of every row of the table."""
    return list({each.replacement: each for each in reversed(list(functions()))}.values())


def one_family_per_row():
    """First family of every row of the table."""
    return {each.replacement: family for family in reversed(list(families())) for each in family.functions}.values()


def paths(members):
    return [function.path for function in members]


def test_every_function_of_the_installed_version_is_replaced():
    """`enable` compares values, gradients and changed states of every function."""
    before = list(functions())
    assert enable() == paths(before)
    rows = {entry.replacement for entry in before}
    assert rows == {*TABLE} or Version(transformers.__version__) < Version("5.17")
    assert not {entry.function for entry in before} & {entry.function for entry in functions()}


def assert_equal(family, calls):
    comparison = Comparison.of(family)
    assert len(calls) > 5, f"{family.name}: kernels must run"
    for name in Numbers._fields:
        bound = {"gradients": CLOSE_GRADIENTS, "half": tolerance(torch.bfloat16).forward}.get(name, CLOSE)
        difference = comparison.error(name)
        assert isinstance(difference, str) or difference < bound, f"{family.name}: {name} {difference}"


def test_results_of_one_family_per_memory_are_equal(calls):
    for family in {family.name: family for family in one_family_per_row()}.values():
        calls.clear()
        assert_equal(family, calls)


@pytest.mark.slow
def test_results_of_every_family_are_equal(calls):
    members = list(families())
    assert len(members) >= 7, "Qwen3-Next, Qwen3.5, OLMo-hybrid, RWKV, xLSTM, RecurrentGemma, MiniMax: since 5.6"
    for family in members:
        calls.clear()
        assert_equal(family, calls)


@pytest.mark.slow
def test_memories_in_the_sizes_of_published_models_have_the_same_results():
    """Values and gradients of a long sequence, and values of decoded tokens."""
    if Version(transformers.__version__) < Version("5.17"):
        pytest.skip("has some of the functions only, and without shared keys")
    expected = results_in_published_sizes()
    enable()
    ours = results_in_published_sizes()
    for name, leaves in expected.items():
        bound = CLOSE_GRADIENTS if name.endswith("training") else CLOSE
        for result, want in zip(ours[name], leaves, strict=True):
            assert error(result, want) < bound, name


def results_in_published_sizes():
    """Tensors by memory and kind of run."""
    results = {}
    for name, (make, sizes) in ALONE.items():
        torch.manual_seed(0)
        for kind, run in make(*sizes).items():
            results[f"{name}, {kind}"] = [leaf for leaf in tree_leaves(run()) if isinstance(leaf, torch.Tensor)]
    return results


def test_gradient_checkpointing_has_the_same_gradients():
    tokens = torch.randint(2, 50, (2, T))
    for family in one_family_per_row():
        if not family.model.supports_gradient_checkpointing:
            continue
        results = []
        for is_enabled in (False, True):
            disable()
            if is_enabled:
                enable()
            model = family.small().train()
            # The second name is the one before 5.24.
            names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
            next(getattr(model, name) for name in names if hasattr(model, name))()
            torch.manual_seed(2)
            results.append(learn(model, tokens)[1])
        for name, gradient in results[0].items():
            assert error(results[1][name], gradient, least=1e-3) < CLOSE_GRADIENTS, f"{family.name}: {name}"


@pytest.mark.slow
def test_torch_compile_works_where_it_worked_without_the_kernels():
    tokens = torch.randint(2, 50, (2, T))
    for family in one_family_per_row():
        errors = []
        for is_enabled in (False, True):
            disable()
            if is_enabled:
                enable()
            torch._dynamo.reset()
            model = family.small()
            with torch.no_grad():
                expected = model(tokens, use_cache=False).logits
                compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
                logits = attempt(lambda compiled=compiled: compiled(tokens, use_cache=False).logits)
            errors.append(isinstance(logits, str) or not error(logits, expected) < CLOSE)
        assert errors[1] <= errors[0], family.name


def test_trainer_with_labels_has_the_same_losses_and_weights(tmp_path):
    pytest.importorskip("accelerate", reason="needs accelerate")
    from transformers import Trainer, TrainingArguments

    options = {
        "max_steps": 3,
        "per_device_train_batch_size": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "optim": "sgd",
    }
    options |= {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
    rows = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(2, 50, (6, T))]
    family = next(
        each for each in families() if any(entry.replacement is delta_rules.GATED for entry in each.functions)
    )
    results = []
    for is_enabled in (False, True):
        if is_enabled:
            enable()
        trainer = Trainer(family.small().train(), TrainingArguments(tmp_path, **options), train_dataset=rows)
        trainer.train()
        losses = torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
        results.append((losses, dict(trainer.model.named_parameters())))
    (losses, weights), (our_losses, our_weights) = results
    assert len(losses) == 3
    assert error(our_losses, losses) < CLOSE_GRADIENTS
    assert all(error(our_weights[name], weight) < CLOSE_GRADIENTS for name, weight in weights.items())


def test_copies_of_models_and_threads_use_the_kernels(calls):
    tokens = torch.randint(2, 50, (1, T))
    model = next(iter(families())).small()
    with ThreadPoolExecutor(4) as pool:
        names = [job.result() for job in [pool.submit(enable) for _ in range(4)]]
        assert all(each == names[0] for each in names)
        copy = deepcopy(model)
        with torch.no_grad():
            expected = model(tokens).logits
            results = list(pool.map(lambda each: each(tokens).logits, [copy, model, copy, model]))
    assert len(calls) >= 5
    assert not any(error(logits, expected) for logits in results)


def test_disable_restores_the_original_functions():
    before = list(functions())
    assert enable() == enable() == paths(before)
    disable()
    assert [entry.function for entry in functions()] == [entry.function for entry in before]
    disable()


def arguments_of(entry, dtype=torch.float32):
    """Random arguments of a delta rule, with decays per head or per feature."""
    q, k = torch.randn(2, 1, T, 2, 6, dtype=dtype)
    decays = (1, T, 2) if entry.replacement is delta_rules.GATED else (1, T, 2, 6)
    v, g, beta = (
        torch.randn(1, T, 2, 8, dtype=dtype),
        -torch.rand(decays, dtype=dtype),
        torch.rand(1, T, 2, dtype=dtype),
    )
    return {"query": q, "key": k, "value": v, "g": g, "beta": beta}


def delta_rule_functions():
    return [entry for entry in functions() if entry.replacement in (delta_rules.GATED, delta_rules.KIMI)]


def test_models_created_while_enabled_return_to_the_original():
    (first, *_) = delta_rule_functions()
    enable()
    replaced = getattr(first.owner, first.name)
    x = arguments_of(first, torch.float64)
    assert replaced(**x, initial_state=None, output_final_state=True)[1].dtype == torch.float64
    disable()
    assert replaced(**x, initial_state=None, output_final_state=True)[1].dtype == torch.float32, "as in the original"


def test_other_devices_use_the_original():
    enable()
    for entry in functions():
        if entry.replacement in CONVOLUTIONS:
            x, weight = torch.empty(1, 64, T, device="meta"), torch.empty(64, 4, device="meta")
            assert getattr(entry.owner, entry.name)(x, weight, activation="silu").device.type == "meta"


class Operations(TorchDispatchMode):
    """The names of all operations, and the dtypes of their results."""

    def __init__(self):
        super().__init__()
        self.names, self.dtypes = set(), set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.names.add(function.name())
        self.dtypes |= {x.dtype for x in tree_leaves(result) if isinstance(x, torch.Tensor)}
        return result


def long_inputs(entry, device):
    """Arguments of a function whose memory runs in chunks, for 100 time steps, with gradients."""

    def draw(*shape):
        return torch.rand(shape, generator=source).to(device).requires_grad_()

    source, T = torch.Generator().manual_seed(0), 100
    if entry.replacement is ssd.SCAN:
        arguments = draw(1, T, 4, 16), draw(1, T, 4), -draw(4), draw(1, T, 2, 16), draw(1, T, 2, 16)
        return arguments, {"chunk_size": 64, "return_final_states": True}
    decays = (1, T, 4, 16) if entry.replacement is delta_rules.KIMI else (1, T, 4)
    arguments = draw(1, T, 4, 16), draw(1, T, 4, 16), draw(1, T, 4, 8), -draw(*decays), draw(1, T, 4)
    return arguments, {"initial_state": None, "output_final_state": True, "use_qk_l2norm_in_kernel": True}


def in_chunks():
    """One function of every memory that runs in chunks."""
    rows = (delta_rules.GATED, delta_rules.KIMI, ssd.SCAN)
    return [entry for entry in one_per_row() if entry.replacement in rows]


def test_memories_run_on_other_devices_by_operations_of_every_device(calls):
    """The device "meta" stands for one without kernels. mps and xpu lack float64 or solvers of linear systems."""
    enable(devices=["meta"])
    for entry in in_chunks():
        calls.clear()
        arguments, options = long_inputs(entry, "meta")
        with Operations() as operations:
            results = tree_leaves(getattr(entry.owner, entry.name)(*arguments, **options))
            sum(x.sum() for x in results).backward()
        assert calls, entry.path
        assert arguments[0].grad.device.type == "meta"
        assert not [name for name in operations.names if "linalg" in name or "triangular" in name]
        assert torch.float64 not in operations.dtypes
    disable()
    enable()
    calls.clear()
    (entry, *_) = in_chunks()
    arguments, options = long_inputs(entry, "meta")
    getattr(entry.owner, entry.name)(*arguments, **options)
    assert not calls


def test_chunks_of_other_devices_have_the_same_numbers(monkeypatch):
    """The same path on a CPU, in chunks and without a solver, against the functions of transformers."""
    originals = in_chunks()
    enable()
    monkeypatch.setattr(chunks, "SOLVERS", ())
    for module in (functional, ssd):
        monkeypatch.setattr(module, "scan", functools.partial(dispatch.scan, backend="chunkwise"))
    for entry in originals:
        results = []
        for function in (inspect.unwrap(entry.function), getattr(entry.owner, entry.name)):
            arguments, options = long_inputs(entry, "cpu")
            outputs = tree_leaves(function(*arguments, **options))
            results.append([*outputs, *torch.autograd.grad(sum(x.square().sum() for x in outputs), arguments)])
        assert all(error(x, y) < CLOSE_GRADIENTS for x, y in zip(*results, strict=True)), entry.path


def test_an_unknown_type_of_devices_is_refused():
    for name in ("tpu", "mps:0"):
        with pytest.raises(InputError, match=f"devices must be types of devices of PyTorch.*'{name}'"):
            enable(devices=[name])


def test_arguments_without_a_kernel_use_the_original(calls):
    enable()
    calls.clear()
    for entry in {f.replacement: f for f in functions() if f.replacement in CONVOLUTIONS}.values():
        x, weight = torch.randn(1, 64, T), torch.randn(64, 4)
        ours = getattr(entry.owner, entry.name)(x, weight, activation="gelu")
        assert torch.equal(ours, inspect.unwrap(entry.function)(x, weight, activation="gelu"))
    assert not calls


def test_calls_do_not_search_for_a_compiler(monkeypatch):
    """The search reads many files, which takes as long as a short convolution."""
    rows = one_per_row()
    enable()
    samples = [(getattr(f.owner, f.name), each) for f in rows for each in f.replacement.trials(f.module, torch.rand)]
    with torch.no_grad():
        for function, sample in samples:
            function(*sample.arguments, **sample.options)
        monkeypatch.setattr(toolchain, "toolchain", fails)
        for function, sample in samples:
            function(*sample.arguments, **sample.options)


def test_enable_keeps_the_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with torch.no_grad():
        enable()
    assert torch.equal(torch.rand(3), expected)


def test_a_version_that_is_too_old_changes_nothing(monkeypatch):
    before = [entry.function for entry in functions()]
    monkeypatch.setattr("transformers.__version__", "4.57.1")
    with pytest.raises(InputError, match=r"transformers must be a version >=.*, got 4.57.1"):
        enable()
    assert [entry.function for entry in functions()] == before


@pytest.mark.parametrize("version", ["5.99.0", "6.1.0.dev0"])
def test_an_unknown_version_with_equal_functions_is_supported(monkeypatch, version):
    monkeypatch.setattr("transformers.__version__", version)
    assert enable() == paths(functions())


def changed(function, change):
    """The function with changed results and the same arguments."""

    @functools.wraps(inspect.unwrap(function))
    def other(*args, **options):
        return change(inspect.unwrap(function)(*args, **options))

    del other.__wrapped__
    other.__signature__ = inspect.signature(function)
    return other


def fails(results):
    raise RuntimeError("the states\nare of another shape")


def without_first(results):
    return None if isinstance(results, torch.Tensor) else (None, *results[1:])


def with_each(change):
    return lambda results: tree_map(lambda x: None if x is None else change(x), results)


CHANGES = {
    "values": (with_each(lambda x: 2 * x), "got other numbers"),
    "gradients": (with_each(lambda x: x + (x - x.detach())), "got other numbers"),
    "a missing result": (without_first, r"got (other numbers|\w+Error \()"),
    "failure": (fails, r"got RuntimeError \(the states are of another shape\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_function_with_other_results_is_named_and_not_replaced(monkeypatch, caplog, change):
    """One function per row of the table."""
    named = set()
    for entry in one_per_row():
        if entry.replacement is ssd.FUSED_LAYER or (change == "gradients" and entry.replacement in STEPS):
            continue
        named.add(entry.path)
        monkeypatch.setattr(entry.owner, entry.name, changed(entry.function, CHANGES[change][0]))
    originals = [entry.function for entry in functions() if entry.path in named]
    assert enable() == [path for path in paths(functions()) if path not in named]
    assert [entry.function for entry in functions() if entry.path in named] == originals
    assert len(caplog.messages) == len(named)
    for message in caplog.messages:
        assert re.match(rf"({'|'.join(map(re.escape, named))}) must be .*, {CHANGES[change][1]}", message), message
        assert "\n" not in message


def test_a_function_with_other_arguments_is_named_and_not_replaced(monkeypatch, caplog):
    rows = one_per_row()
    for each in rows:
        monkeypatch.setattr(each.owner, each.name, lambda queries, keys: None)
    assert not {*paths(rows)} & {*enable()}
    for each in rows:
        (message,) = (m for m in caplog.messages if m.startswith(each.path))
        assert re.match(rf"{re.escape(each.path)} must be a function of .*, got queries, keys\.", message)


def packings(documents):
    """All kinds of boundaries of documents that are packed into one row."""
    ends = torch.tensor([0, *torch.tensor([len(d) for d in documents]).cumsum(0)], dtype=torch.int32)
    numbers = torch.cat([torch.full_like(d, n) for n, d in enumerate(documents)])[None].int()
    both = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 6, "max_length_k": 6}
    return {"ends": both, "numbers": {"seq_idx": numbers}, "all": {**both, "seq_idx": numbers}}


def packing_families():
    """Families whose convolutions and memories receive the boundaries of packed sequences."""
    needed = {delta_rules.GATED, delta_rules.KIMI, ssd.SCAN}
    for family in families():
        rows = {entry.replacement for entry in family.functions}
        ignores_boundaries = family.name == "mamba2"  # its model passes none to its layers
        if rows & needed and convolution.CONVOLUTION in rows and not ignores_boundaries:
            yield family


SIZES_FOR_PACKING = {
    "granitemoehybrid": {"layer_types": ["mamba", "mamba"]},
    "glm5_next": {"layer_types": ["linear_attention", "linear_attention"]},
}
"""Sizes of models whose attention does not separate packed sequences on a CPU."""


@pytest.mark.parametrize("marks", ["ends", "numbers", "all"])
def test_packed_documents_train_as_alone(marks):
    """In every family whose layers receive boundaries: convolution, memory and attention separate the documents."""
    enable()
    documents = [torch.randint(2, 50, (n,)) for n in (4, 1, 6)]
    options = {"position_ids": torch.cat([torch.arange(len(d)) for d in documents])[None], **packings(documents)[marks]}
    tried = list(packing_families())
    assert tried or Version(transformers.__version__) < Version("5.17")
    for family in tried:
        model = family.small(**SIZES_FOR_PACKING.get(family.name, {})).train()
        tokens = torch.cat(documents)[None]
        packed = model(tokens, use_cache=False, **options).logits
        alone = torch.cat([model(d[None], use_cache=False).logits for d in documents], 1)
        assert error(packed, alone) < CLOSE, family.name
        direction = torch.randn_like(alone)
        learned = [p for p in model.parameters() if p.requires_grad]
        pairs = [torch.autograd.grad((x * direction).sum(), learned, allow_unused=True) for x in (packed, alone)]
        for one, other in zip(*pairs, strict=True):
            assert one is None or error(one, other, least=1e-3) < CLOSE_GRADIENTS, family.name


def packable():
    """Functions `(x, state, **marks) -> (o, last)` of memories that support packing, their inputs, and a state."""
    by_row = {each.replacement: each for each in functions()}
    for row in (delta_rules.GATED, delta_rules.KIMI):
        if row in by_row:
            function = getattr(by_row[row].owner, by_row[row].name)
            yield (
                lambda x, state=None, f=function, **marks: f(
                    **x, initial_state=state, output_final_state=True, **marks
                ),
                arguments_of(by_row[row]),
                torch.randn(1, 2, 6, 8),
            )
    if ssd.SCAN in by_row:
        function = getattr(by_row[ssd.SCAN].owner, by_row[ssd.SCAN].name)
        x, dt = torch.randn(1, T, 4, 8), torch.rand(1, T, 4)
        B, C = torch.randn(2, 1, T, 2, 6)
        options = {"A": -torch.rand(4), "chunk_size": 4, "D": torch.rand(4), "return_final_states": True}
        yield (
            lambda x, state=None, f=function, **marks: f(**x, **options, initial_states=state, **marks),
            {"hidden_states": x, "dt": dt, "B": B, "C": C},
            torch.randn(1, 4, 8, 6),
        )


def test_packed_sequences_are_independent():
    """The originals refuse packed sequences."""
    enable()
    for run, x, _ in packable():
        apart = [run({name: y[:, a:b] for name, y in x.items()})[0] for a, b in ((0, 4), (4, T))]
        numbers = (torch.arange(T) >= 4).int()[None]
        for marks in ({"cu_seqlens": torch.tensor([0, 4, T])}, {"seq_idx": numbers}):
            assert error(run(x, **marks)[0], torch.cat(apart, 1)) < CLOSE


def test_rows_of_packed_sequences_have_separate_states():
    """A row starts from its own state, and ends with the state of its last sequence."""
    enable()
    for run, x, state in packable():
        rows = {name: torch.cat([y, y.flip(1)]) for name, y in x.items()}
        start, cuts = torch.cat([state, -state]), (4, 7)
        numbers = torch.stack([(torch.arange(T) >= cut).int() for cut in cuts])
        o, last = run(rows, start, seq_idx=numbers)
        for row, cut in enumerate(cuts):
            first = run({n: y[[row], :cut] for n, y in rows.items()}, start[[row]])[0]
            second, end = run({n: y[[row], cut:] for n, y in rows.items()})
            assert error(o[[row]], torch.cat([first, second], 1)) < CLOSE
            assert error(last[[row]], end) < CLOSE


@pytest.mark.parametrize("rows", [1, 2])
def test_convolutions_of_packed_sequences_are_independent(rows):
    """Columns of a cache belong to the first sequence of a row."""
    enable()
    for entry in (each for each in functions() if each.replacement is convolution.CONVOLUTION):
        ours, original = getattr(entry.owner, entry.name), inspect.unwrap(entry.function)
        x, weight, bias = torch.randn(rows, 3, T), torch.randn(3, 4), torch.randn(3)
        cuts, front = (4, 7)[:rows], torch.randn(rows, 3, 4)
        numbers = torch.stack([(torch.arange(T) >= cut).int() for cut in cuts])
        marks = [{"seq_idx": numbers}, *([{"cu_seq_lens_q": torch.tensor([0, 4, T])}] if rows == 1 else [])]
        for before in (x[:, :, :0], front):
            whole = torch.cat([before, x], 2)
            for mark in marks:
                result = ours(whole, weight, bias, activation="silu", **mark)[:, :, -T:]
                for row, cut in enumerate(cuts):
                    start = before.shape[2] + cut
                    first, second = whole[[row], :, :start], whole[[row], :, start:]
                    expected = [original(part, weight, bias, activation="silu") for part in (first, second)]
                    assert error(result[[row]], torch.cat(expected, 2)[:, :, -T:]) < CLOSE, entry.path


def test_models_without_support_refuse_packed_sequences():
    enable()
    beside = [each for each in functions() if each.replacement is convolution.NEXT_TO_MAMBA]
    for entry in beside:
        with pytest.raises(ValueError, match="can't keep packed sequences apart"):
            getattr(entry.owner, entry.name)(torch.randn(1, 3, T), torch.randn(3, 4), seq_idx=torch.zeros(1, T).int())


@pytest.mark.parametrize("batch", [1, 2])
def test_heads_with_shared_keys_read_one_copy(calls, batch):
    """Keys and queries of a prompt have a stride of 0 over the heads of a group."""
    tokens = torch.randint(2, 50, (batch, T))
    enable()
    names = {"mamba", "mamba2", "zamba2"}
    if Version(transformers.__version__) >= Version("5.17"):
        names |= {"qwen3_next"}  # older versions copy the keys before the call
    tried = [family for family in families() if family.name in names]
    for family in tried:
        calls.clear()
        with torch.no_grad():
            family.small()(tokens)
        shared = [call.tensors.inputs for call in calls if hasattr(call.tensors.inputs, "q")]
        assert shared
        for inputs in shared:
            assert inputs.q.shape[2] == 1 or inputs.q.stride(2) == inputs.k.stride(2) == 0, family.name


@pytest.mark.parametrize("has_fla", [False, True])
def test_delta_rules_use_chunk_kernels_on_a_gpu_without_fla(monkeypatch, has_fla):
    """With flash-linear-attention, transformers uses its kernels. Fake tensors have a device, so no GPU is needed."""
    pytest.importorskip("triton")
    monkeypatch.setattr(replacement, "HAS_FLA", has_fla)
    with FakeTensorMode():
        on_gpu, elsewhere = torch.empty(1, device="cuda"), torch.empty(1, device="meta")
        assert [r.fits(*[on_gpu] * 3) for r in (delta_rules.GATED, delta_rules.KIMI)] == [not has_fla] * 2
        assert not delta_rules.GATED.fits(*[elsewhere] * 3)


def test_chunk_kernels_equal_the_functions_of_transformers():
    """Results, last state and gradients under Triton's interpreter."""
    pytest.importorskip("triton")
    script, cases = str(Path(__file__).with_name("interpreted_chunks.py")), ["qwen3_next:gated", "kimi_linear:kimi"]
    command = [sys.executable, script, "replaces_a_function_of_transformers", *cases]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.stdout.splitlines() == [f"{case}: ok" for case in cases], done.stderr
