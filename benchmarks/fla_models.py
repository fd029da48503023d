"""Small random models of every class of flash-linear-attention on a CPU, compared with its own kernels.

python benchmarks/fla_models.py                        # prints the table of the installed version
python benchmarks/fla_models.py --into docs/how-to/fla.md     # writes it into the page
python benchmarks/fla_models.py --only DeltaNet GLA    # only these classes

The kernels of flash-linear-attention run under Triton's interpreter, in one process per class.
"""

import argparse
import inspect
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

SIZES = {
    **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_heads": 2},
    **{"head_dim": 16, "expand_ratio": 16, "state_size": 16, "max_position_embeddings": 128, "num_slots": 8},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "chunk_size": 16},
}
"""Sizes that make a model small, under the names of all classes."""
MORE: dict[str, dict[str, Any]] = {
    "Mamba2": {"num_heads": 4},
    "LogLinearMamba2": {"num_heads": 4},
    "HGRN": {"expand_ratio": 1},
    "GSA": {"expand_ratio": 1},
    "Mamba": {"state_size": 8},
    "Raven": {"topk": 4},
    # Without its cross-decoder, whose attention needs a GPU.
    "YOCO": {
        **{"self_decoder_attn": {"num_heads": 2, "head_dim": 16}},
        **{"num_self_decoder_layers": 2, "num_hidden_layers": 2},
    },
}
"""Further sizes by class."""
ATTENTION = "attention of a kind that needs a GPU"
UNSUPPORTED = {
    **dict.fromkeys(("DeltaFormer", "MLA", "MoBA", "NSA", "Samba", "Transformer"), "needs the package flash-attn"),
    **dict.fromkeys(("ForgettingTransformer", "PaTHAttention", "Parallax", "WallTransformer"), ATTENTION),
    **dict.fromkeys(("StickBreakingAttention", "CyclicFlowAttention"), ATTENTION),
    "CAT": "FlexAttention of PyTorch has no backward pass on a CPU",
    "BitNet": "quantised linear maps that need a GPU",
    "Mamba3": "needs the package mamba-ssm",
    "LogLinearMamba2": "flash-linear-attention does not implement it on a CPU",
    "Rodimus": "needs flash-attn, or a GPU",
}
"""Classes that do not run on a CPU, with the reasons."""
NOT_INTERPRETED = {
    "LightNet": "runs; the interpreter cannot run its own kernels",
    "MesaNet": "runs; equal to the exact PyTorch reference of its authors, not to its kernels under the interpreter",
}
"""Classes whose own kernels do not work under the interpreter."""
LOSE_STATE = ("ABC",)
"""Classes whose own kernels do not continue a sequence."""
REMARKS = {
    "ABC": "runs; its own kernels lose a part of the state, so cached tokens are compared with the sequence",
    "YOCO": "runs without its cross-decoder, whose attention needs a GPU",
}
"""Texts of further classes for the table."""
LENGTHS = (20, 80)
"""Many layers call a recurrent kernel below 64 tokens, and a chunked one above."""


def names() -> list[str]:
    """Names of all language models of the installed version, without `ForCausalLM`."""
    import fla.models

    end = "ForCausalLM"
    return sorted(name.removesuffix(end) for name in dir(fla.models) if name.endswith(end))


def small(name: str, sizes: Mapping[str, Any] = SIZES) -> Any:
    """A small random model: the same weights in every call, large enough that the memory counts.

    Args:
        name: Name of the class, without `ForCausalLM`.
        sizes: Sizes under the names of all classes. Those of `MORE` replace them.
    """
    import fla.models

    config = getattr(fla.models, f"{name}Config")
    # A config may pass the options of its base class on.
    classes = [each for each in config.__mro__ if each.__module__.startswith("fla.")]
    known = {option for each in classes for option in inspect.signature(each).parameters}
    known_sizes = {key: size for key, size in {**sizes, **MORE.get(name, {})}.items() if key in known}
    torch.manual_seed(0)
    model = getattr(fla.models, f"{name}ForCausalLM")(config(**known_sizes)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                # RWKV-7 initialises its output maps with zeros.
                weight.mul_(4) if weight.any() else weight.normal_(0, 0.3)
    return model


def tokens_of(T: int, rows: int = 1) -> Tensor:
    """The same tokens `[rows, T]` in every call; none of them is special."""
    return torch.randint(3, 50, (rows, T), generator=torch.Generator().manual_seed(T))


class Numbers(NamedTuple):
    """Results of a small model for one length."""

    logits: Tensor
    loss: Tensor
    gradients: dict[str, Tensor]
    steps: Tensor


def numbers(model: Any, T: int) -> Numbers:
    """Logits, the loss of the next token with its gradients, and logits of a prompt and four cached steps."""
    tokens = tokens_of(T)
    model.zero_grad()
    result = model(tokens, labels=tokens, use_cache=False)
    result.loss.backward()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits
        steps = in_pieces(model, tokens, [T - 4, 1, 1, 1, 1])
    return Numbers(logits, result.loss.detach(), gradients, steps)


def in_pieces(model: Any, tokens: Tensor, lengths: list[int], mask: Tensor | None = None) -> Tensor:
    """Logits `[B, T, N]` of tokens that a model reads in pieces, with a cache."""
    cache, outputs, end = None, [], 0
    for length in lengths:
        start, end = end, end + length
        options = {} if mask is None else {"attention_mask": mask[:, :end]}
        result = model(tokens[:, start:end], past_key_values=cache, use_cache=True, **options)
        cache = result.past_key_values
        outputs.append(result.logits)
    return torch.cat(outputs, 1)


def oracle(name: str, weights: Mapping[str, Tensor]) -> dict[int, Numbers]:
    """The numbers of a class by its own kernels, for both lengths. They are computed in another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "numbers"
        write(file, dict(weights))
        command = [sys.executable, "-O", __file__, "--interpret", name, str(file)]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
        return {T: Numbers(*values) for T, values in read(file).items()}


def write(file: Path, tensors: Any) -> None:
    """Writes tensors as arrays: files of torch name dtypes, which `interpret` exchanges."""
    file.write_bytes(pickle.dumps(tree_map(lambda x: x.detach().numpy(), tensors)))


def read(file: Path) -> Any:
    """Reads a file of `write`."""
    return tree_map(torch.as_tensor, pickle.loads(file.read_bytes()))


def interpreted(name: str, file: Path) -> None:
    """Reads the weights of a class, and writes its numbers by its own kernels in their place."""
    import transformers  # noqa: F401  # before dtypes are exchanged

    from interpreted_fla import interpret

    interpret()
    model = small(name).double()
    model.load_state_dict(read(file), strict=False)
    write(file, {T: tuple(numbers(model, T)) for T in LENGTHS})


class Errors(NamedTuple):
    """Relative errors of a class against its own kernels, the largest of both lengths."""

    logits: float
    gradients: float
    steps: float

    @staticmethod
    def of(theirs: dict[int, Numbers], ours: dict[int, Numbers]) -> "Errors":
        """Compares all numbers. A gradient that only one of the two has is an infinite error."""
        return Errors(
            max(error(ours[T].logits, theirs[T].logits) for T in theirs),
            max(gradient_error(ours[T].gradients, theirs[T].gradients) for T in theirs),
            max(error(ours[T].steps, theirs[T].steps) for T in theirs),
        )


def error(ours: Tensor, theirs: Tensor) -> float:
    """Length of the difference, relative to the length of the expected tensor."""
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp(min=1e-3))


def gradient_error(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest error of a parameter's gradient."""
    return max(error(ours[key], theirs[key]) for key in theirs) if ours.keys() == theirs.keys() else float("inf")


def compared(name: str) -> Errors:
    """The errors of a class in float64. `enable` must be in force."""
    model = small(name).double()
    theirs = oracle(name, model.state_dict())
    if name in LOSE_STATE:
        theirs = {T: each._replace(steps=each.logits) for T, each in theirs.items()}
    return Errors.of(theirs, {T: numbers(model, T) for T in LENGTHS})


def row(name: str) -> str:
    """The row of a class in the table."""
    if name in UNSUPPORTED:
        return f"| {name} | {UNSUPPORTED[name]} | | | |"
    if name in NOT_INTERPRETED:
        return f"| {name} | {NOT_INTERPRETED[name]} | | | |"
    errors = [f"{value:.0e}" for value in compared(name)]
    line = f"| {name} | {REMARKS.get(name, 'runs')} | {' | '.join(errors)} |"
    print(line, flush=True)
    return line


HEAD = "| class | on a CPU | logits | gradients | cached tokens |\n|---|---|---|---|---|"


def table(chosen: list[str]) -> str:
    """One row per class."""
    import fla

    from fastweights.adapters.fla import enable

    enable()
    versions = f"flash-linear-attention {fla.__version__}, torch {torch.__version__}, float64."
    return "\n".join([versions, "", HEAD, *map(row, chosen)])


def main() -> None:
    """Prints the table, or writes it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="page that gets the table between its marks")
    parser.add_argument("--only", nargs="+", metavar="CLASS", help="names of classes (default: all)")
    parser.add_argument("--interpret", nargs=2, metavar=("CLASS", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if options.interpret:
        interpreted(options.interpret[0], Path(options.interpret[1]))
        return
    text = table(options.only or names())
    if options.into:
        from page import put

        put(options.into, "fla_models", text)
    print(text)


if __name__ == "__main__":
    main()
