"""Hugging Face's transformers: their models on this library's kernels."""

from fastweights.adapters.transformers.kernels import disable, enable

__all__ = ["disable", "enable"]
