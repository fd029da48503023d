"""What a benchmark found, on a page, between the marks that name the benchmark."""

from pathlib import Path

END = "<!-- to here -->\n"


def put(page: Path, benchmark: str, text: str) -> None:
    """Replaces what stands behind `<!-- benchmarks/NAME.py writes from here -->`, up to `<!-- to here -->`."""
    before, _, after = _parts(page, benchmark)
    page.write_text(f"{before}{_begin(benchmark)}\n{text.strip()}\n\n{END}{after}")


def found(page: Path, benchmark: str) -> str:
    """What stands there."""
    return _parts(page, benchmark)[1].strip()


def _parts(page: Path, benchmark: str) -> tuple[str, str, str]:
    before, begin, rest = (page.read_text() if page.is_file() else "").partition(_begin(benchmark))
    if not begin or END not in rest:
        raise SystemExit(f"{page} must have a line {_begin(benchmark).strip()}, and later {END.strip()}, got none.")
    inside, _, after = rest.partition(END)
    return before, inside, after


def _begin(benchmark: str) -> str:
    return f"<!-- benchmarks/{benchmark}.py writes from here -->\n"
