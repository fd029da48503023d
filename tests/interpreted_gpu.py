"""Runs benchmarks/gpu.py on a CPU, in a process with Triton's interpreter.

TRITON_INTERPRET=1 python tests/interpreted_gpu.py --csv FILE [OPTION ...]
"""

import sys
from pathlib import Path

from interpreted import interpret

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

if __name__ == "__main__":
    interpret()
    import gpu

    gpu.main(["--dry-run", *sys.argv[1:]])
