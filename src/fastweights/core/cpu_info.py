"""The description of the CPU by Linux."""

from contextlib import suppress
from pathlib import Path


def cpu_info() -> dict[str, str]:
    """The fields of the first processor in `/proc/cpuinfo` by name; empty on other systems."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
