"""The machine and the software of a run."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from fastweights.core.cpu_info import cpu_info


def environment() -> dict[str, Any]:
    """The versions of libraries, the revision of this one, and the hardware, by name."""
    # Reports read run folders without torch, whose import takes seconds.
    import numpy
    import torch

    from fastweights.core.version import __version__

    return {
        "fastweights": __version__,
        "revision": _revision(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "processor": cpu_info().get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def _revision() -> str:
    """The git revision of the library, with `+` if its files were changed; empty outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
