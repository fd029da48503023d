"""Small random models of every class of transformers with a function that `enable` replaces, and their errors.

python benchmarks/recurrent_models.py                                # prints the table of the installed version
python benchmarks/recurrent_models.py --into docs/how-to/transformers.md    # writes it into the page
"""

import argparse
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

from fastweights.adapters.transformers import disable, enable
from fastweights.adapters.transformers.found import Found, functions
from fastweights.adapters.transformers.state_cache import CACHE
from fastweights.adapters.transformers.version import SUPPORTED
from fastweights.testing.tolerance import error
from page import put, written

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
"""Sizes that make a model small, under the names of all families; K and V of a memory differ."""
MAMBA = {"layer_types": ["mamba", "full_attention"], "mamba_d_state": 16, "mamba_expand": 2, "num_key_value_heads": 2}
SSD = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_chunk_size": 4, **MAMBA}
MORE: dict[str, dict[str, Any]] = {
    "bamba": {**SSD, "attn_layer_indices": [1]},
    "falcon_h1": {**SSD, "mamba_d_ssm": 64},
    "falcon_mamba": {"state_size": 16},
    "glm5_next": {
        **{"layer_types": ["linear_attention", "indexed_attention"], "n_routed_experts": 4, "q_lora_rank": 8},
        **{"index_topk": 8, "index_head_dim": 16, "index_n_heads": 2, "index_kpool": 2, "hc_mult": 2, "head_dim": 0},
        **{"qk_rope_head_dim": 0, "mlp_layer_types": ["dense", "sparse"]},
    },
    "granitemoehybrid": {**SSD, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 16},
    "inkling": {"layer_types": ["hybrid_sliding", "hybrid"], "num_experts": 4},
    "inkling2": {"layer_types": ["hybrid_sliding", "hybrid"], "n_routed_experts": 4},
    "inkling2_loop": {"layer_types": ["hybrid_sliding", "hybrid"], "n_routed_experts": 4},
    "jamba": {**MAMBA, "attn_layer_offset": 1, "attn_layer_period": 2, "num_experts": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "mamba": {"state_size": 16},
    "mamba2": {"num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 4, "state_size": 16},
    "minimax": {"num_key_value_heads": 2, "block_size": 4},
    "nemotron_h": {
        **{"mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "chunk_size": 4, "ssm_state_size": 16},
        **{"layers_block_type": ["mamba", "attention"]},
    },
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 64},
    "rwkv": {"attention_hidden_size": 32, "context_length": 64},
    "xlstm": {"hidden_size": 128, "num_heads": 2, "num_blocks": 2, "chunk_size": 4},
    "zamba": {
        **{"num_hidden_layers": 6, "attn_layer_offset": 1, "attn_layer_period": 2, "n_mamba_heads": 2},
        **{"mamba_d_state": 16, "attention_hidden_size": 64, "attention_head_dim": 32, "num_key_value_heads": 2},
    },
    "zamba2": {
        **{"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "mamba_d_state": 16},
        **{"n_mamba_heads": 4, "mamba_headdim": 16, "mamba_ngroups": 2, "mamba_expand": 2, "chunk_size": 4},
        **{"attention_hidden_size": 64, "attention_head_dim": 32, "num_key_value_heads": 2},
    },
}
"""Further sizes by family."""

VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
"""Sizes of the part of a model that reads images."""
ENDS = ("ForCausalLM", "ForConditionalGeneration")
"""Ends of the names of language models. The second end counts in modules without the first."""
CACHES = (CACHE, "cache_params", "past_key_values", "state")
"""Names of caches in outputs and in calls."""
T = 11


class Family(NamedTuple):
    """A language model of transformers with functions that `enable` replaces."""

    model: type[transformers.PreTrainedModel]
    functions: list[Found]

    @property
    def name(self) -> str:
        """The name of the folder of its module."""
        return self.functions[0].module.__name__.split(".")[-2]

    @property
    def text_config(self) -> Any:
        """The class of the config of its language model: a part of its config if it reads images, too."""
        config = self.model.config_class
        return config if self.model.__name__.endswith(ENDS[0]) else config.sub_configs["text_config"]

    def small(self, **changes: Any) -> Any:
        """A small random model: the same weights in every call, large enough that the memory counts.

        Args:
            **changes: Sizes in place of those of the family.
        """
        names = inspect.signature(self.text_config).parameters
        # Latent attention has keys and values for every head.
        latent = {"num_key_value_heads": SIZES["num_attention_heads"]} if "kv_lora_rank" in names else {}
        sizes = {**SIZES, **latent, **MORE.get(self.name, {}), **changes}
        if self.name == "xlstm":
            del sizes["head_dim"]  # its sizes follow from the number of heads
        torch.manual_seed(1)
        config = self.text_config(**{n: size for n, size in sizes.items() if n in names})
        if self.text_config is not self.model.config_class:
            config = self.model.config_class(text_config=config, vision_config=VISION)
        model = self.model(config).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim == 2 and "A_log" not in name:
                    weight.mul_(3)
        return model


def families() -> Iterator[Family]:
    """The language models of every module in which a function was found, and those within models that read images."""
    by_module: dict[Any, list[Found]] = {}
    for function in functions():
        by_module.setdefault(function.module, []).append(function)
    for module, members in by_module.items():
        own = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        chosen = ([c for c in own if c.__name__.endswith(end)] for end in ENDS)
        yield from (Family(c, members) for c in next(filter(None, chosen), ()))


class Numbers(NamedTuple):
    """Results of a small model. A text stands for the name of an error."""

    logits: Tensor
    gradients: dict[str, Tensor]
    steps: Any
    several: Any
    padded: Any
    greedy: Any
    beams: Any
    speculative: Any
    half: Any


def numbers_of(family: Family) -> Numbers:
    """All results of a new small model of a family."""
    model, tokens = family.small(), torch.randint(2, 50, (2, T), generator=torch.Generator().manual_seed(0))
    return Numbers(
        *learn(model, tokens),
        steps=attempt(in_pieces, model, tokens, [T - 3, 1, 1, 1]),
        several=attempt(in_pieces, model, tokens, [T - 4, 4]),
        padded=attempt(left_padded, model, tokens),
        greedy=attempt(generated, model, tokens),
        beams=attempt(generated, model, tokens, {"num_beams": 2}),
        speculative=attempt(generated, model, tokens[:1, [0, 1, 0, 1, 0]], {"prompt_lookup_num_tokens": 2}),
        half=attempt(half, family, tokens),
    )


def attempt(run: Any, *arguments: Any) -> Any:
    """The result of `run`, or the name of the error that transformers raises."""
    try:
        with torch.no_grad():
            return run(*arguments)
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) as failure:
        return type(failure).__name__


def learn(model: Any, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the gradients of their loss for all parameters."""
    result = model(tokens, labels=tokens, use_cache=False)
    result.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    for module in model.modules():
        if hasattr(module, "recurrent_states"):
            module.recurrent_states = None  # RecurrentGemma keeps the graph of the last call
    return result.logits.detach(), gradients


def in_pieces(model: Any, tokens: Tensor, lengths: list[int], mask: Tensor | None = None) -> Tensor:
    """Logits `[B, T, N]` of tokens that a model reads in pieces, with a cache."""
    outputs, end = [], 0
    returns_no_cache = model.config.model_type == "recurrent_gemma"
    cache = {CACHE: transformers.DynamicCache(config=model.config)} if returns_no_cache else {}
    for length in lengths:
        start, end = end, end + length
        options = {} if mask is None else {"attention_mask": mask[:, :end]}
        if returns_no_cache:
            options["position_ids"] = torch.arange(start, end)[None]
        result = model(tokens[:, start:end], use_cache=True, **cache, **options)
        cache = {name: result[name] for name in CACHES if result.get(name) is not None} or cache
        # From 5.24 outputs have the deprecated name as well.
        cache = {CACHE: cache[CACHE]} if CACHE in cache else cache
        outputs.append(result.logits)
    return torch.cat(outputs, 1)


def left_padded(model: Any, tokens: Tensor) -> Tensor:
    """Logits of a batch with one left-padded sequence: a prompt, and three tokens from its cache."""
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    logits = in_pieces(model, tokens, [T - 3, 1, 1, 1], mask)
    return torch.cat([logits[0, 3:], logits[1]])


def generated(model: Any, tokens: Tensor, options: dict[str, int] | None = None) -> Tensor:
    """Tokens of `generate`."""
    fixed = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    continued: Tensor = model.generate(tokens, attention_mask=torch.ones_like(tokens), **fixed, **(options or {}))
    return continued


def half(family: Family, tokens: Tensor) -> Tensor:
    """Logits of a model with weights in bfloat16: a prompt, and three tokens from its cache."""
    return in_pieces(family.small().to(torch.bfloat16), tokens, [T - 3, 1, 1, 1])


class Comparison(NamedTuple):
    """The results of transformers and of this library for one family."""

    theirs: Numbers
    ours: Numbers

    @staticmethod
    def of(family: Family) -> "Comparison":
        """Runs both. Each has a new model, since up to 5.16 a model looks up its functions when it is created."""
        disable()
        theirs = numbers_of(family)
        enable()
        try:
            return Comparison(theirs, numbers_of(family))
        finally:
            disable()

    def error(self, name: str) -> float | str:
        """Relative error of a result; infinity if only one of the two raises, the name of the error if both do.

        Logits in bfloat16 are compared with those in float32: the excess over the error of transformers counts.
        """
        ours, theirs = getattr(self.ours, name), getattr(self.theirs, name)
        if name == "gradients":
            same = ours.keys() == theirs.keys()
            return max(error(ours[n], theirs[n], least=1e-3) for n in theirs) if same else float("inf")
        if isinstance(theirs, str) or isinstance(ours, str):
            return theirs if theirs is ours or theirs == ours else float("inf")
        if name == "half":
            exact = self.theirs.steps
            excess = error(ours, exact) - error(theirs, exact)
            return max(0.0, excess) if ours.dtype == theirs.dtype else float("inf")
        return error(ours, theirs) if ours.dtype == theirs.dtype else float("inf")


def cell(error: float | str) -> str:
    """A relative error in a table, or the name of the error that transformers raises."""
    return error if isinstance(error, str) else "equal" if error == 0 else f"{error:.0e}"


def table() -> str:
    """One row per model class: its functions and the relative errors of its numbers."""
    lines = [f"transformers {transformers.__version__}, torch {torch.__version__}, float32.", "", HEAD, RULE]
    for family in families():
        comparison = Comparison.of(family)
        names = ", ".join(dict.fromkeys(function.replacement.memory for function in family.functions))
        errors = [cell(comparison.error(name)) for name in Numbers._fields]
        lines.append(f"| {family.model.__name__} | {names} | {' | '.join(errors)} |")
    return "\n".join(lines)


def with_other_version(page: str, text: str) -> str:
    """The tables of the installed version and of the other one: the newest first, then the oldest supported."""
    oldest = f"transformers {SUPPORTED.removeprefix('>=')},"
    tables = page.split("\n\ntransformers ")
    tables = [tables[0], *(f"transformers {table}" for table in tables[1:])]
    others = [table for table in tables if table.startswith(oldest) != text.startswith(oldest)]
    return "\n\n".join(sorted([text, *filter(None, others)], key=lambda table: table.startswith(oldest)))


HEAD = (
    "| model | functions | logits | gradients | cached tokens | several tokens after a cache | left padding |"
    " `generate` | beams | prompt lookup | bfloat16 |"
)
RULE = f"|{'---|' * (HEAD.count('|') - 1)}"


def main() -> None:
    """Prints the table, or writes it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="page that gets the table between its marks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    text = table()
    if options.into:
        put(options.into, "recurrent_models", with_other_version(written(options.into, "recurrent_models"), text))
    print(text)


if __name__ == "__main__":
    main()
