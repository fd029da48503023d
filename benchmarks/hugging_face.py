"""Models of transformers with their own loops in PyTorch and on this library's kernels: times of one run.

    python benchmarks/hugging_face.py                               # prints the tables: five minutes
    python benchmarks/hugging_face.py --into docs/how-to/transformers.md     # writes them into the page

First the memory alone, in the sizes of published models, then a whole small model of every family. Times are those of
the processor, of one thread, and the two take turns: whatever else the machine does, the ratios say what they should.
"""

import argparse
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import transformers
from torch import Tensor

from fastweights.adapters.transformers import disable, enable
from fastweights.adapters.transformers.found import Found, functions
from fastweights.adapters.transformers.state_cache import CACHE
from fastweights.training.run_folder.run import environment
from page import put

T = 512
SIZES = {
    "Qwen3-Next, one layer": ("gated_delta_rule", 32, 128, 128),
    "half as wide": ("gated_delta_rule", 16, 64, 64),
    "small": ("gated_delta_rule", 4, 32, 32),
    "Kimi-Linear, half as wide": ("kimi_delta_attention", 16, 64, 64),
    "Kimi-Linear, small": ("kimi_delta_attention", 4, 32, 32),
}
"""The memory, heads, size of keys, size of values."""
MODEL = {
    **{"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64, "head_dim": 64},
    **{"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048},
    **{"linear_key_head_dim": 32, "linear_value_head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8},
    **{"shared_expert_intermediate_size": 64, "num_experts_per_tok": 2, "num_experts": 4, "num_local_experts": 4},
    **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 64, "indexer_budget": 64, "hc_lowrank": 32},
    **{"linear_head_dim": 32, "linear_num_heads": 8, "kv_lora_rank": 64, "q_lora_rank": None, "qk_rope_head_dim": 32},
    **{"qk_nope_head_dim": 32, "v_head_dim": 64, "n_group": 1, "topk_group": 1, "num_mtp_layers": 0},
    **{"indexer_compress_ratio": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None},
    **{"layer_types": [*["linear_attention"] * 3, "full_attention"]},
}

Run = Callable[[], object]
Pair = tuple[Tensor, Tensor]


def compare(make: Callable[[], dict[str, Run]], repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds of the processor for every run with loops and with kernels: medians of measurements that take turns."""
    runs: dict[bool, dict[str, Run]] = {}
    for ours in (False, True):
        switch(ours)
        runs[ours] = make()
        for run in runs[ours].values():
            run()
    times: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in runs[True]}
    for _ in range(repeats):
        for ours in (False, True):
            switch(ours)
            for kind, run in runs[ours].items():
                start = time.process_time()
                run()
                times[kind][ours].append(time.process_time() - start)
    return {kind: (median(theirs), median(own)) for kind, (theirs, own) in times.items()}


def switch(ours: bool) -> None:
    """Kernels or loops."""
    if ours:
        enable()
    else:
        disable()


def memory(name: str, H: int, K: int, V: int) -> dict[str, Run]:
    """What one layer does with its memory, as the first model that has it calls it."""
    loops = {loop.name: loop for loop in functions() if loop.kind == name}
    chunk, recurrent = (next(loop for end, loop in loops.items() if kind in end) for kind in ("chunk", "recurrent"))
    q, k, v = torch.randn(1, T, H, K), torch.randn(1, T, H, K), torch.randn(1, T, H, V)
    features = (K,) if name == "kimi_delta_attention" else ()
    g, beta = -torch.rand(1, T, H, *features), torch.rand(1, T, H)
    whole, options = (q, k, v, g, beta), {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    one = [x[:, :1].contiguous() for x in whole]
    learning = [x.clone().requires_grad_() for x in whole]
    cache = transformers.cache_utils.LinearAttentionLayer()
    cache.update_recurrent_state(torch.randn(1, H, K, V))

    def call(loop: Found, given: list[Tensor], initial_state: Tensor | None = None) -> Pair:
        q, k, v, g, beta = given
        function = getattr(loop.module, loop.name)
        return function(q, k, v, g=g, beta=beta, initial_state=initial_state, **options)

    def prefill() -> None:
        with torch.no_grad():
            call(chunk, list(whole))

    def decode() -> None:
        with torch.no_grad():
            for _ in range(10):
                state = cache.recurrent_states[0]
                cache.update_recurrent_state(call(recurrent, one, state)[1])

    def train() -> None:
        torch.autograd.grad(call(chunk, learning)[0].sum(), learning)

    return {"prefill": prefill, "training": train, "decode": decode}


def model(family: type[transformers.PreTrainedModel]) -> dict[str, Run]:
    """A whole small model: a sequence read, learned from, and continued by 16 tokens."""
    known = inspect.signature(family.config_class).parameters
    # Latent attention has keys and values for every head.
    sizes = MODEL | {"num_key_value_heads": MODEL["num_attention_heads"]} if "kv_lora_rank" in known else MODEL
    torch.manual_seed(0)
    network = family(family.config_class(**{name: size for name, size in sizes.items() if name in known}))
    tokens = torch.randint(2, 1000, (1, T))

    def prefill() -> None:
        with torch.no_grad():
            network(tokens, use_cache=True)

    def train() -> None:
        network.zero_grad()
        network(tokens, labels=tokens, use_cache=False).loss.backward()

    with torch.no_grad():
        cache = network(tokens[:, :64], use_cache=True)[CACHE]

    def decode() -> None:
        with torch.no_grad():
            for t in range(16):
                network(tokens[:, [t]], use_cache=True, **{CACHE: cache})

    return {"prefill": prefill, "training": train, "decode": decode}


def families() -> list[type[transformers.PreTrainedModel]]:
    """The models for text that have a memory."""
    modules = {loop.module.__name__: loop.module for loop in functions()}
    classes = [c for module in modules.values() for c in vars(module).values() if inspect.isclass(c)]
    return [c for c in classes if c.__name__.endswith("ForCausalLM") and c.__module__ in modules]


def report(repeats: int) -> str:
    """The two tables."""
    lines = [
        f"float32, a sequence of {T}, medians of {repeats} that take turns, in time of one thread of"
        f" {environment()['processor']}, torch {torch.__version__}, transformers {transformers.__version__}."
        " Decoding is per token.",
        "",
        "| the memory alone: heads, K, V | | loop ms | kernel ms | times as fast |",
        "|---|---|---:|---:|---:|",
    ]
    for name, sizes in SIZES.items():
        torch.manual_seed(0)
        for kind, pair in compare(lambda sizes=sizes: memory(*sizes), repeats).items():
            steps = 10 if kind == "decode" else 1
            theirs, ours = (1e3 * seconds / steps for seconds in pair)
            what = f"{name}: {', '.join(map(str, sizes[1:]))}"
            lines.append(f"| {what} | {kind} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} |")
    lines += ["", "| a small model | | loop tokens/s | kernel tokens/s | times as fast |", "|---|---|---:|---:|---:|"]
    for family in families():
        for kind, pair in compare(lambda family=family: model(family), repeats).items():
            theirs, ours = ((16 if kind == "decode" else T) / seconds for seconds in pair)
            lines.append(f"| {family.__name__} | {kind} | {theirs:,.0f} | {ours:,.0f} | {ours / theirs:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the tables, or puts them onto a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="a page between whose marks the tables go")
    parser.add_argument("--repeats", type=int, default=15, help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = report(options.repeats)
    if options.into:
        put(options.into, "hugging_face", text)
    print(text)


if __name__ == "__main__":
    main()
