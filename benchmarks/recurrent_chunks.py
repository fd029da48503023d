"""Times chunks with a compiled loop, and one compiled kernel, for recurrent cells with affine parts, on one CPU core.

    python benchmarks/recurrent_chunks.py                       # writes docs/measurements/recurrent-chunks.csv
    python benchmarks/recurrent_chunks.py delta-rnn,2,256,2,256 # CELL,B,T,H,K with V = K: only prints

The backends take turns. Times are the smallest CPU times of five calls in milliseconds, for a forward and backward pass
in float32.
"""

import argparse
import csv
import io
import time
from pathlib import Path

import torch

from fastweights import Cell, scan
from fastweights.core.files import write_atomically
from fastweights.testing import scan_checks
from fastweights.testing.samples import Shape

FILE = Path(__file__).parents[1] / "docs" / "measurements" / "recurrent-chunks.csv"
CASES = (
    *("delta-rnn,1,256,1,256", "delta-rnn,2,256,1,256", "delta-rnn,2,256,2,256", "delta-rnn,4,64,2,256"),
    *("delta-rnn,1,512,1,320", "delta-rnn,8,256,4,64", "delta-rnn,4,256,4,128"),
    *("delta-rnn-v1,2,256,2,256", "srwm,2,256,2,256", "one-rate-srwm,2,256,2,256", "sr-delta-net,2,256,2,160"),
    *("mesa,2,256,2,128", "mesa,2,256,2,256", "recursive-least-squares,2,256,2,256", "delta-lstm,1,256,2,256"),
)
CALLS = 5


def milliseconds(case: str) -> dict[str, float]:
    """The time of a training step by backend."""
    name, *sizes = case.split(",")
    batch, steps, heads, size = map(int, sizes)
    a = scan_checks.arguments(Cell.from_name(name), Shape(batch, steps, heads, size, size)).to(torch.float32)
    a = scan_checks.with_gradients(a._replace(reset=None, state=None))
    times: dict[str, list[float]] = {"compiled": [], "chunkwise": []}
    for _ in range(CALLS + 1):
        for backend, measured in times.items():
            begin = time.process_time()
            scan(name, *a, backend=backend)[0].sum().backward()
            measured.append(1e3 * (time.process_time() - begin))
    return {backend: min(measured[1:]) for backend, measured in times.items()}


def main() -> None:
    """Times the cases, and writes the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="CELL,B,T,H,K (default: all of the table)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("cell", "B", "T", "H", "K", "compiled", "chunkwise", "ratio"))
    for case in options.cases or CASES:
        times = milliseconds(case)
        ratio = times["chunkwise"] / times["compiled"]
        row = (*case.split(","), f"{times['compiled']:.1f}", f"{times['chunkwise']:.1f}", f"{ratio:.2f}")
        print(*row, flush=True)
        writer.writerow(row)
    if not options.cases:
        write_atomically(FILE, text.getvalue().encode())


if __name__ == "__main__":
    main()
