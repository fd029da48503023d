"""The metadata of a task in a run folder: short facts in `config.json`, and long ones in `task.json`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastweights.core.errors import require
from fastweights.core.sealed_json import REMEDY, read_sealed, write_sealed

TASK = "task.json"
LONG = 1 << 12
"""Largest length of a short fact, in characters of JSON."""
MARK = f"in {TASK}, SHA-256 "


def shortened(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with digests in place of long ones."""
    return {name: _digest(fact) if _is_long(fact) else fact for name, fact in facts.items()}


def write_long(folder: Path, facts: Mapping[str, Any]) -> None:
    """Writes the long facts into `task.json`, if there are any."""
    (folder / TASK).unlink(missing_ok=True)
    if long := {name: fact for name, fact in facts.items() if _is_long(fact)}:
        write_sealed(folder / TASK, {"facts": long})


def read_whole(folder: Path, short: dict[str, Any]) -> dict[str, Any]:
    """The facts before `shortened`; `InputError` if a long one is missing or of another task."""
    long: Any = read_sealed(folder / TASK).get("facts") if (folder / TASK).exists() else {}
    expected = {name: fact for name, fact in short.items() if str(fact).startswith(MARK)}
    same = isinstance(long, dict) and shortened(long) == expected
    require(same, TASK, f"present with {', '.join(expected)} of the run", folder / TASK, REMEDY)
    return {**short, **long}


def _is_long(fact: Any) -> bool:
    return len(json.dumps(fact)) > LONG


def _digest(fact: Any) -> str:
    return f"{MARK}{hashlib.sha256(json.dumps(fact).encode()).hexdigest()}"
