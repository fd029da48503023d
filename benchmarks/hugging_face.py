"""Times models of transformers with their PyTorch code and with our kernels, and models of flash-linear-attention.

    python benchmarks/hugging_face.py                          # measures: an hour; writes docs/measurements
    python benchmarks/hugging_face.py --only Mamba             # prints a part of the measurements
    python benchmarks/hugging_face.py --fla                    # measures the models of flash-linear-attention
    python benchmarks/hugging_face.py --into docs/how-to/transformers.md    # writes the tables into the page
    python benchmarks/hugging_face.py --fla --into docs/how-to/fla.md

The first table has memories alone, in the sizes of published models, the second a small model of every family. Times
are CPU time of one thread. Both forms alternate, so that other load on the machine affects both. Models of
flash-linear-attention do not run on a CPU without `enable`. Their times are compared with those of the matrix products
of their linear maps.
"""

import argparse
import csv
import ctypes
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from csv_tables import write_tables
from fastweights.adapters.transformers import enable
from fastweights.adapters.transformers.found import Found, functions
from fastweights.adapters.transformers.state_cache import CACHE
from fastweights.training.malloc import use_arena_allocator
from fastweights.training.run_folder.environment import environment
from page import put
from recurrent_models import CACHES, MORE, SIZES, Family, families

RUNS = ("prefill", "training", "decode")
T = 512
STEPS = 16
"""Tokens per measurement of decoding."""
SECONDS = 3
"""Time after which no further measurement of a run begins."""
SHORT = 0.1
"""Seconds for which a run is repeated. Their median counts."""
REPEATS = 25
"""The largest number of measurements of a run."""
FOLDER = Path(__file__).parents[1] / "docs" / "measurements"

Run = Callable[[], object]
Make = Callable[..., dict[str, Run]]


class Measurement(NamedTuple):
    """CPU seconds, and the increase of the peak memory in MiB."""

    seconds: float
    memory: float


def compare(make: Callable[[], dict[str, Run]], kinds: list[str]) -> dict[str, tuple[Measurement, Measurement]]:
    """Measurements of every run by transformers and by this library, in alternation: medians of seconds."""
    runs: dict[bool, dict[str, Run]] = {}
    for ours in (False, True):
        switch(ours)
        runs[ours] = make()
    return {kind: compare_runs(runs[False][kind], run) for kind, run in runs[True].items() if kind in kinds}


def compare_runs(theirs: Run, ours: Run) -> tuple[Measurement, Measurement]:
    """Measurements of two runs in alternation."""
    memory = []
    for is_ours, run in enumerate((theirs, ours)):
        switch(bool(is_ours))
        run()  # builds kernels, and fills caches
        memory.append(peak(run))
    times = in_turns((theirs, ours), lambda is_ours: switch(bool(is_ours)))
    first, second = map(Measurement, times, memory)
    return first, second


def in_turns(runs: Sequence[Run], before: Callable[[int], object] = lambda _: None) -> list[float]:
    """Median times of runs that take turns, in seconds.

    Args:
        runs: The runs. Each has run before.
        before: Called before each run, with its number.
    """
    times: list[list[float]] = [[] for _ in runs]
    start = time.perf_counter()
    while len(times[-1]) < REPEATS and (not times[-1] or time.perf_counter() - start < SECONDS):
        for number, run in enumerate(runs):
            before(number)
            times[number].append(seconds(run))
    return list(map(median, times))


def seconds(run: Run) -> float:
    """CPU time of a run. The median of a short run in a row."""
    times: list[float] = []
    while sum(times) < SHORT:
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return median(times)


def peak(run: Run) -> float:
    """Increase of the peak memory of the process in a run, in MiB. Linux only."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    run()
    return (status("VmHWM") - before) / 1024


def status(name: str) -> int:
    """A number of the status of the process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def switch(ours: bool) -> None:
    """Turns the kernels on or off. `enable` compares every function with its original, so it is called once."""
    for entry, replacement in replaced():
        setattr(entry.owner, entry.name, replacement if ours else entry.function)


@cache
def replaced() -> list[tuple[Found, Callable[..., Any]]]:
    """All functions that `enable` replaces, with their replacements."""
    entries = list(functions())
    enable()
    return [(entry, getattr(entry.owner, entry.name)) for entry in entries]


def function(name: str, family: str) -> Callable[[], Callable[..., Any]]:
    """Looks up the current form of a function of a family of models."""
    path = f"transformers.models.{family}.modeling_{family}.{name}"
    entry: Found = next(each for each in functions() if each.path == path)
    return lambda: getattr(entry.owner, entry.name)


def trained(call: Callable[..., Any], inputs: Mapping[str, Any]) -> Run:
    """A forward and a backward pass to all floating inputs."""
    learned = {n: x.clone().requires_grad_() if isinstance(x, Tensor) else x for n, x in inputs.items()}
    leaves = [x for x in learned.values() if isinstance(x, Tensor)]

    def run() -> tuple[Tensor | None, ...]:
        y = call(**learned)
        return torch.autograd.grad((y[0] if isinstance(y, tuple) else y).sum(), leaves, allow_unused=True)

    return run


def products(run: Run) -> Run:
    """The matrix products of the linear maps in a run, alone: a lower bound of its time with kernels for all else."""
    calls: list[tuple[Callable[..., Any], list[Any]]] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
                calls.append((function, [x.detach() for x in arguments]))
            return function(*arguments, **(options or {}))

    with Recorder():
        run()

    def replay() -> None:
        with torch.no_grad():
            for function, arguments in calls:
                function(*arguments)

    return replay


def untrained(call: Callable[..., Any], inputs: Mapping[str, Any], times: int = 1) -> Run:
    """Forward passes. A run returns the result of the last one."""

    def run() -> Any:
        with torch.no_grad():
            for _ in range(times):
                result = call(**inputs)
        return result

    return run


def delta_rule(name: str, family: str, H: int, G: int, K: int, V: int) -> dict[str, Run]:
    """A delta rule with G heads of keys and H heads of values."""
    chunk, step = (function(part.format(name), family) for part in PARTS[name])
    q, k, v = torch.randn(1, T, G, K), torch.randn(1, T, G, K), torch.randn(1, T, H, V)
    features = (K,) if name == "kimi_delta_attention" else ()
    g, beta = -torch.rand(1, T, H, *features), torch.rand(1, T, H)
    x = {"query": q, "key": k, "value": v, "g": g, "beta": beta}
    options = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    cache = transformers.cache_utils.LinearAttentionLayer()
    state = cache.update_recurrent_state(torch.randn(1, H, K, V))
    token = {name: each[:, :1].contiguous() for name, each in x.items()}

    def decode() -> Tensor:
        y, last = step()(**token, initial_state=state, **options)
        cache.update_recurrent_state(last)
        return y

    def whole(**inputs: Tensor) -> Any:
        return chunk()(**inputs, initial_state=None, **options)

    return {"prefill": untrained(whole, x), "training": trained(whole, x), "decode": untrained(decode, {}, STEPS)}


PARTS = {
    "gated_delta_rule": ("torch_chunk_{}", "torch_recurrent_{}"),
    "kimi_delta_attention": ("chunk_{}", "recurrent_{}"),
}


def selective_scan(d: int, N: int) -> dict[str, Run]:
    """The selective scan of Mamba."""
    scan, step = (function(f"mamba_selective_{part}", "mamba") for part in ("scan", "state_update"))
    (x, z), dt = torch.randn(2, 1, T, d).transpose(2, 3), torch.randn(1, d, T)  # as the models lay them out
    B, C = torch.randn(2, 1, T, N).transpose(2, 3)
    A, D, bias = -torch.rand(d, N), torch.ones(d), torch.randn(d)
    inputs = {"hidden_states": x, "dt": dt, "A": A, "B": B, "C": C, "D": D, "z": z, "delta_bias": bias}
    token = {"hidden_states": x, "dt": dt, "B": B, "C": C, "z": z}
    token = {name: each[..., 0].contiguous() for name, each in token.items()}
    state = torch.randn(1, d, N)

    def whole(**inputs: Tensor) -> Any:
        return scan()(**inputs, delta_softplus=True)

    def decode() -> Tensor:
        return step()(state, **token, A=A, D=D, dt_bias=bias, dt_softplus=True)

    return {
        "prefill": untrained(whole, inputs),
        "training": trained(whole, inputs),
        "decode": untrained(decode, {}, STEPS),
    }


def ssd(H: int, P: int, N: int, G: int) -> dict[str, Run]:
    """The SSD of Mamba-2, with G groups of heads that share B and C."""
    scan, step = (function(f"mamba2_{part}", "mamba2") for part in ("chunk_scan", "selective_state_update"))
    x, dt, A = torch.randn(1, T, H, P), torch.randn(1, T, H), -torch.rand(H)
    B, C = torch.randn(2, 1, T, G, N)
    D, bias = torch.ones(H), torch.randn(H)
    inputs = {"hidden_states": x, "dt": dt, "A": A, "B": B, "C": C, "D": D, "dt_bias": bias}
    state = torch.randn(1, H, P, N)
    rows = {name: each[:, None].expand(H, P) for name, each in {"D": D, "dt_bias": bias}.items()}
    token = {"hidden_states": x[:, 0], "dt": dt[:, 0, :, None].expand(1, H, P), "B": B[:, 0], "C": C[:, 0], **rows}

    def whole(**inputs: Tensor) -> Any:
        return scan()(**inputs, chunk_size=256, dt_softplus=True)

    def decode() -> Tensor:
        return step()(state, **token, A=A[:, None, None].expand(H, P, N), dt_softplus=True)

    return {
        "prefill": untrained(whole, inputs),
        "training": trained(whole, inputs),
        "decode": untrained(decode, {}, STEPS),
    }


def mlstm(H: int, K: int, V: int, length: int) -> dict[str, Run]:
    """The mLSTM of xLSTM."""
    forward = function("xLSTMBackend.forward", "xlstm")
    from transformers.models.xlstm.modeling_xlstm import xLSTMBackend

    backend = xLSTMBackend(transformers.xLSTMConfig())
    q, k = torch.randn(2, 1, H, length, K)
    v, (i, f) = torch.randn(1, H, length, V), torch.randn(2, 1, H, length)
    x = {"query": q, "key": k, "value": v, "igate": i, "fgate": f}
    token = {name: each[:, :, :1].contiguous() for name, each in x.items()}
    states = torch.randn(1, H, K, V), torch.randn(1, H, K), torch.zeros(1, H, 1)

    def whole(**inputs: Tensor) -> Any:
        return forward()(backend, **inputs)

    def decode() -> Any:
        return forward()(backend, *token.values(), *states)

    return {"prefill": untrained(whole, x), "training": trained(whole, x), "decode": untrained(decode, {}, STEPS)}


def rg_lru(d: int) -> dict[str, Run]:
    """The RG-LRU of RecurrentGemma."""
    scan = function("RecurrentGemmaRglru._rnn_scan", "recurrent_gemma")
    x = {"hidden_states": torch.randn(1, T, d), "recurrent_gate": torch.rand(1, T, d)}
    token, state = {name: each[:, :1].contiguous() for name, each in x.items()}, torch.randn(1, d)

    def whole(**inputs: Tensor) -> Any:
        return scan()(None, **inputs, reset=torch.zeros(1, T, 1, dtype=torch.bool), recurrent_states=None)

    def decode() -> Any:
        return scan()(None, **token, reset=torch.zeros(1, 1, 1, dtype=torch.bool), recurrent_states=state)

    return {"prefill": untrained(whole, x), "training": trained(whole, x), "decode": untrained(decode, {}, STEPS)}


def wkv(d: int) -> dict[str, Run]:
    """The memory of RWKV-4."""
    scan = function("rwkv_linear_attention", "rwkv")
    key, value = torch.randn(2, 1, T, d)
    decay, first = torch.randn(2, d)
    x = {"time_decay": decay, "time_first": first, "key": key, "value": value}
    token, state = {**x, "key": key[:, :1], "value": value[:, :1]}, [torch.rand(1, d) for _ in range(3)]

    def whole(**inputs: Tensor) -> Any:
        return scan()(**inputs)

    def decode() -> Any:
        return scan()(**token, state=state, return_state=True)

    return {"prefill": untrained(whole, x), "training": trained(whole, x), "decode": untrained(decode, {}, STEPS)}


def convolution(D: int, W: int) -> dict[str, Run]:
    """The short causal convolution."""
    convolve = function("causal_conv1d_fn", "mamba2")
    x = {"hidden_states": torch.randn(1, T, D).mT, "weight": torch.randn(D, W), "bias": torch.randn(D)}

    def whole(**inputs: Tensor) -> Any:
        return convolve()(**inputs, activation="silu")

    return {"prefill": untrained(whole, x), "training": trained(whole, x)}


ALONE: dict[str, tuple[Make, tuple[Any, ...]]] = {
    "gated delta rule, Qwen3-Next: 32 heads, 16 of keys, 128 x 128": (
        delta_rule,
        ("gated_delta_rule", "qwen3_next", 32, 16, 128, 128),
    ),
    "small: 4 heads, 32 x 32": (delta_rule, ("gated_delta_rule", "qwen3_next", 4, 4, 32, 32)),
    "Kimi delta attention: 16 heads, 64 x 64": (
        delta_rule,
        ("kimi_delta_attention", "kimi_linear", 16, 16, 64, 64),
    ),
    "selective scan, Mamba 130M: 1536 x 16": (selective_scan, (1536, 16)),
    "SSD, Mamba-2 130M: 24 heads, 64 x 128": (ssd, (24, 64, 128, 1)),
    "SSD, 80 heads in 8 groups, 64 x 128": (ssd, (80, 64, 128, 8)),
    "mLSTM, xLSTM 7B: 8 heads, 256 x 512": (mlstm, (8, 256, 512, T)),
    "mLSTM, xLSTM 7B: 8 heads, 256 x 512, T = 511": (mlstm, (8, 256, 512, T - 1)),
    "mLSTM, 4 heads, 64 x 128, T = 511": (mlstm, (4, 64, 128, T - 1)),
    "RG-LRU, RecurrentGemma 2B: 2560": (rg_lru, (2560,)),
    "WKV, RWKV-4 169M: 768": (wkv, (768,)),
    "short convolution, Mamba-2 130M: 1792 x 4": (convolution, (1792, 4)),
}
"""Memories alone, with their sizes."""
GROUPED: dict[str, tuple[int, int]] = {
    "gated delta rule, Qwen3-Next: 32 heads, 16 of keys, 128 x 128": (32, 128),
    "SSD, Mamba-2 130M: 24 heads, 64 x 128": (24, 128),
    "SSD, 80 heads in 8 groups, 64 x 128": (80, 128),
}
"""Memories whose heads share keys in groups: number of heads and size of a key."""

LARGER = {
    **{"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64, "head_dim": 64},
    **{"num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 2048, "context_length": 2048},
    **{"linear_key_head_dim": 32, "linear_value_head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8},
    **{"shared_expert_intermediate_size": 64, "indexer_head_dim": 64, "indexer_budget": 64, "hc_lowrank": 32},
    **{"linear_head_dim": 32, "linear_num_heads": 8, "kv_lora_rank": 64, "qk_rope_head_dim": 32},
    **{"qk_nope_head_dim": 32, "v_head_dim": 64, "lru_width": 256, "attention_hidden_size": 256},
    **{"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_ssm": 512, "mamba_num_heads": 8, "mamba_head_dim": 64},
    **{"mamba_d_state": 128, "state_size": 128, "ssm_state_size": 128, "num_heads": 8, "num_blocks": 4},
    **{"chunk_size": 256, "mamba_chunk_size": 256, "block_size": 256, "attn_layer_indices": [3]},
}
"""Sizes of the small models."""
OWN: dict[str, dict[str, Any]] = {
    "jamba": {"attn_layer_offset": 3, "attn_layer_period": 4, "mamba_d_state": 16},
    "mamba": {"state_size": 16},
    "falcon_mamba": {"state_size": 16},
    "xlstm": {"num_heads": 4, "chunk_size": 64},
    "zamba": {"num_hidden_layers": 6, "attention_hidden_size": 512, "attention_head_dim": 128, "mamba_d_state": 16},
    "zamba2": {"n_mamba_heads": 8, "attention_hidden_size": 512, "attention_head_dim": 128},
    "recurrent_gemma": {"num_hidden_layers": 4},
}
"""Sizes of single families that replace those of `LARGER`."""


def sizes(family: Family) -> dict[str, Any]:
    """Sizes of a small model: three layers with a memory, and one with attention if the family has both."""
    own = MORE.get(family.name, {})
    kinds = {name: own[name] for name in ("layer_types", "layers_block_type") if name in own} or {
        "layer_types": SIZES["layer_types"]
    }
    layers: dict[str, Any] = {
        name: types if len(types) > 2 else [types[0]] * 3 + [types[-1]] for name, types in kinds.items()
    }
    return {**LARGER, **layers, **OWN.get(family.name, {})}


def model(family: Family) -> dict[str, Run]:
    """Runs of a small model: reading a sequence, training on it, and continuing it."""
    network = family.small(**sizes(family))
    tokens = torch.randint(2, 1000, (1, T))
    needs_cache = family.name == "recurrent_gemma"

    def read(tokens: Tensor, cache: dict[str, Any], position: int) -> dict[str, Any]:
        options = {"position_ids": position + torch.arange(tokens.shape[1])[None]} if needs_cache else {}
        if needs_cache and not cache:
            cache = {CACHE: transformers.DynamicCache(config=network.config)}
        result = network(tokens, use_cache=True, **cache, **options)
        name = next((name for name in CACHES if result.get(name) is not None), "")
        return {name: result[name]} if name else cache

    def train() -> None:
        network.zero_grad()
        for module in network.modules():
            if hasattr(module, "recurrent_states"):
                module.recurrent_states = None  # with the graph of the last training step
        network(tokens, labels=tokens, use_cache=False).loss.backward()

    def decode() -> None:
        with torch.no_grad():
            cache = prompt
            for t in range(STEPS):
                cache = read(tokens[:, [t]], cache, 64 + t)

    with torch.no_grad():
        prompt = read(tokens[:, :64], {}, 0)
    return {"prefill": untrained(lambda: read(tokens, {}, 0), {}), "training": train, "decode": decode}


def fla_model(name: str) -> dict[str, Run]:
    """Runs of a small model of flash-linear-attention: reading a sequence, training on it, and continuing it."""
    import fla_models

    network = fla_models.small(name, FLA_SIZES)
    tokens = torch.randint(3, 1000, (1, T))

    def train() -> None:
        network.zero_grad()
        network.train()(tokens, labels=tokens, use_cache=False).loss.backward()
        network.eval()

    def decode() -> None:
        """Without gradients: Mixture-of-Memories keeps no cache with them."""
        with torch.no_grad():
            cache = prompt
            for t in range(STEPS):
                cache = network(tokens[:, [t]], past_key_values=cache, use_cache=True).past_key_values

    with torch.no_grad():
        prompt = network(tokens[:, :64], use_cache=True).past_key_values
    return {"prefill": untrained(network, {"input_ids": tokens}), "training": train, "decode": decode}


FLA_SIZES = {
    **{"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_heads": 4},
    **{"head_dim": 64, "num_slots": 64, "state_size": 64, "expand_ratio": 64, "max_position_embeddings": 2048},
}
"""Sizes of the small models of flash-linear-attention."""


def machine(packages: str) -> str:
    """First line of a table: method and machine of the measurement."""
    return (
        f"float32, a sequence of {T}, medians of up to {REPEATS} measurements that take turns, in time of one thread of"
        f" {environment()['processor']}, freed memory is used again, torch {torch.__version__}, {packages}."
    )


def print_rows(rows: Iterator[str]) -> list[str]:
    """Prints rows while they are measured."""
    lines = []
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    return lines


HEAD = "| name | run | transformers, ms | kernels, ms | transformers, MiB | kernels, MiB |\n|---|---|---|---|---|---|"


def memories(only: list[str], kinds: list[str]) -> Iterator[str]:
    """Rows of the memories alone."""
    for name, (make, arguments) in ALONE.items():
        if any(text in name for text in only):
            torch.manual_seed(0)
            yield from rows_of(name, partial(make, *arguments), kinds)


def models(only: list[str], kinds: list[str]) -> Iterator[str]:
    """Rows of the small models."""
    for family in families():
        if any(text in family.name for text in only):
            yield from rows_of(family.model.__name__, partial(model, family), kinds)


def bounds(only: list[str]) -> Iterator[str]:
    """Rows of the matrix products of the small models in a training step."""
    switch(True)
    for family in families():
        if any(text in family.name for text in only):
            yield f"| {family.model.__name__} | {1e3 * alone(products(model(family)['training'])):.3f} |"


def rows_of(name: str, make: Callable[[], dict[str, Run]], kinds: list[str]) -> Iterator[str]:
    """Rows of one memory or model. Times of decoding are per token."""
    for kind, pair in compare(make, kinds).items():
        times = (1e3 * each.seconds / (STEPS if kind == "decode" else 1) for each in pair)
        theirs, ours = (f"{milliseconds:.3f}" for milliseconds in times)
        yield f"| {name} | {kind} | {theirs} | {ours} | {pair[0].memory:.0f} | {pair[1].memory:.0f} |"


BOUND_HEAD = "| name | matrix products of training, ms |\n|---|---|"
FLA_HEAD = "| name | run | model, ms | its matrix products, ms |\n|---|---|---|---|"


def fla_rows(only: list[str]) -> Iterator[str]:
    """Rows of the classes of flash-linear-attention that run on a CPU."""
    import fla_models
    from fastweights.adapters.fla import enable as enable_fla

    enable_fla()
    for name in fla_models.names():
        if name not in fla_models.UNSUPPORTED and any(text in name for text in only):
            for kind, run in fla_model(name).items():
                run()  # builds kernels
                parts = run, products(run)
                whole, bound = (1e3 * each / (STEPS if kind == "decode" else 1) for each in in_turns(parts))
                yield f"| {name} | {kind} | {whole:.3f} | {bound:.3f} |"


def alone(run: Run) -> float:
    """The median time of a run, in seconds."""
    run()
    return in_turns([run])[0]


def measure(only: list[str], kinds: list[str], has_fla: bool) -> tuple[list[str], str]:
    """Names and texts of the tables."""
    transformers_version = f"transformers {transformers.__version__}"
    if has_fla:
        import fla

        text = [machine(f"flash-linear-attention {fla.__version__}, {transformers_version}"), "", FLA_HEAD]
        return ["pretrained-fla"], "\n".join([*text, *print_rows(fla_rows(only))])
    text = [machine(transformers_version), "", HEAD, *print_rows(memories(only, kinds)), ""]
    text += [HEAD, *print_rows(models(only, kinds)), "", BOUND_HEAD, *print_rows(bounds(only))]
    return ["pretrained-memories", "pretrained-models", "pretrained-products"], "\n".join(text)


def read(name: str) -> tuple[list[str], list[dict[str, str]]]:
    """The comments and the rows of `docs/measurements/NAME.csv`."""
    lines = (FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return comments, list(csv.DictReader(line for line in lines if not line.startswith("# ")))


def page_tables() -> str:
    """The tables of the page on transformers, from docs/measurements: one row per memory or model."""
    names = ("pretrained-memories", "pretrained-models", "pretrained-products")
    (comments, alone), (_, whole), (_, bounds) = map(read, names)
    products = {row["name"]: row["matrix products of training, ms"] for row in bounds}
    tables = [page_table("memory alone", alone), grouped_table(alone), page_table("small model", whole, products)]
    return "\n\n".join([" ".join(comments), *tables])


def grouped_table(rows: list[dict[str, str]]) -> str:
    """Table of the memory of prefill where heads share keys, and the size of a copy of the keys per head."""
    lines = ["| heads that share keys | memory of prefill, MiB | keys and queries per head, MiB |", "|---|---|---|"]
    for row in rows:
        if row["name"] in GROUPED and row["run"] == "prefill":
            H, K = GROUPED[row["name"]]
            lines.append(f"| {row['name']} | {in_words(row, 'MiB')} | {2 * 4 * T * H * K / 2**20:.0f} |")
    return "\n".join(lines)


def page_table(title: str, rows: list[dict[str, str]], products: Mapping[str, str] | None = None) -> str:
    """Table with one row per name: milliseconds of transformers and ours, and their ratio.

    Args:
        title: Head of the first column.
        rows: Rows of the measurements.
        products: Milliseconds of the matrix products in training by name, as a column of their own.
    """
    by_name: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["run"]] = row
    titles = [title, "prefill, ms", "training, ms", "decode, ms per token", "memory of training, MiB"]
    table = [[*titles, *(["its matrix products, ms"] if products else [])]]
    for name, runs in by_name.items():
        times = [in_words(runs.get(kind), "ms") for kind in ("prefill", "training", "decode")]
        bound = [f"{float(products[name]):.0f}"] if products else []
        table.append([name, *times, in_words(runs.get("training"), "MiB"), *bound])
    head, *rest = (f"| {' | '.join(cells)} |" for cells in table)
    return "\n".join([head, f"|{'---|' * len(table[0])}", *rest])


def in_words(row: Mapping[str, str] | None, unit: str) -> str:
    """Both numbers of a row, and their ratio for times. Empty without a row."""
    if row is None:
        return ""
    theirs, ours = (float(row[f"{name}, {unit}"]) for name in ("transformers", "kernels"))
    numbers = " → ".join(f"{x:.0f}" if x >= 100 or unit == "MiB" else f"{x:.3g}" for x in (theirs, ours))
    ratio = theirs / ours if ours else 1.0
    return f"{numbers} (**{ratio:.{0 if ratio >= 10 else 1}f} x**)" if unit == "ms" else numbers


def fla_page_table() -> str:
    """The table of the page on flash-linear-attention: milliseconds, and their ratio to those of matrix products."""
    comments, rows = read("pretrained-fla")
    by_name: dict[str, list[str]] = {}
    for row in rows:
        whole, bound = (float(row[column]) for column in ("model, ms", "its matrix products, ms"))
        by_name.setdefault(row["name"], []).append(f"{whole:.3g} ({whole / bound:.1f} x)")
    lines = [f"| {' | '.join([name, *cells])} |" for name, cells in by_name.items()]
    head = ["| class | prefill, ms | training, ms | decode, ms per token |", "|---|---:|---:|---:|"]
    return "\n".join([" ".join(comments), "", *head, *lines])


def main() -> None:
    """Measures and writes the CSV files, or writes these into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--into", type=Path, metavar="PAGE", help="page that gets the measured tables between its marks"
    )
    parser.add_argument("--fla", action="store_true", help="models of flash-linear-attention instead of transformers")
    parser.add_argument("--run", choices=RUNS, help="single kind of runs, printed only")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="parts of names of the models, printed only")
    options = parser.parse_args()
    if options.into:
        put(options.into, "hugging_face", fla_page_table() if options.fla else page_tables())
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    use_arena_allocator()
    transformers.logging.set_verbosity_error()
    names, text = measure(options.only or [""], [options.run] if options.run else [*RUNS], options.fla)
    if not options.only and not options.run:
        write_tables(FOLDER, names, text)


if __name__ == "__main__":
    main()
