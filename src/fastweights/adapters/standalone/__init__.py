"""Trained models as programs of C that need neither Python nor PyTorch."""

from fastweights.adapters.standalone.write import write

__all__ = ["write"]
