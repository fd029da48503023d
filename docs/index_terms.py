"""Terms of the index of the site: the search lists the page of a term first."""

TERMS = {
    "getting-started/installation": ("install", "installation", "extras", "Windows", "macOS", "offline"),
    "getting-started/quick-start": ("quick start", "getting started"),
    "getting-started/choosing-a-layer": ("choose a layer", "compare layers", "list of layers"),
    "getting-started/faq": ("FAQ", "troubleshooting", "no C++ compiler", "NaN loss", "slow first call", "help"),
    "tutorials/classifier": ("classifier", "sequence classification", "time series"),
    "tutorials/language-model": ("language model", "text generation"),
    "tutorials/translator": ("translation", "translator"),
    "tutorials/few-shot": ("few-shot", "few-shot classification", "meta-learning", "data augmentation"),
    "tutorials/agent": ("reinforcement learning", "Gymnasium"),
    "tutorials/update-rule": ("custom rule", "update rule", "custom update rule"),
    "how-to/sequences": (
        "variable length",
        "variable-length sequences",
        "padding",
        "packing",
        "attention mask",
        "mask",
    ),
    "how-to/states": ("save a state", "carry state", "stateful", "beam search", "prefix caching", "in-place update"),
    "how-to/training": (
        *("mixed precision", "bf16", "autocast", "gradient checkpointing", "activation checkpointing"),
        *("gradient accumulation", "early stopping", "patience", "multi-GPU", "distributed training", "FSDP", "DDP"),
        *("torchrun", "resume training", "gradient clipping"),
    ),
    "how-to/kernels": ("ahead-of-time compilation", "kernel cache", "C++ compiler"),
    "how-to/export": ("ONNX", "export", "C++ export"),
    "how-to/custom-cell": ("custom cell", "slow weights"),
    "how-to/inspect": ("inspect", "attention map", "visualise a memory"),
    "how-to/agents": ("agent", "IMPALA", "V-trace", "A3C"),
    "how-to/tasks": ("data sets", "download data", "Omniglot data"),
    "how-to/reproducing": ("reproduce", "SLURM", "report"),
    "how-to/transformers": ("Hugging Face", "transformers", "Qwen3-Next"),
    "how-to/fla": ("flash-linear-attention", "fla"),
    "how-to/torchrl": ("TorchRL",),
    "concepts/fast-weights": ("fast weights", "slow network", "fast network", "delta rule", "linear Transformer"),
    "concepts/states-and-resets": ("hidden state", "recurrent state", "state", "reset"),
    "concepts/backends": ("backend", "chunkwise", "compiled backend", "reference backend"),
    "concepts/online-memory": ("online memory", "learning to remember"),
    "concepts/glossary": ("glossary", "notation", "symbols"),
    "reference/guarantees": ("guarantees", "correctness", "determinism"),
    "reference/bibliography": ("papers", "references", "bibliography", "arXiv"),
    "reference/citing": ("cite", "citation", "BibTeX"),
    "changelog": ("changelog", "release notes", "changes"),
    "contributing/index": ("contributing", "style guide"),
    "performance": ("performance", "benchmark", "speed"),
    "gpu": ("GPU", "Triton", "CUDA"),
    "results/README": ("results", "reproduction results", "verdicts"),
    "cells/delta": ("DeltaNet",),
}
"""Terms by page."""


def indexed(page: str, text: str) -> str:
    """A page with the terms of the index after its title."""
    entries = ", ".join(f"! {term}" for term in TERMS.get(page, ()))
    head, _, rest = text.partition("\n")
    return f"{head}\n\n```{{index}} {entries}\n```\n{rest}" if entries else text
