"""CIFAR-100: small photographs of a hundred classes in twenty groups."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fastweights.core.errors import require
from fastweights.tasks.sources.archives import members
from fastweights.tasks.sources.image_sets import FileVersion, ImageSet, digest_of, version_of
from fastweights.tasks.sources.images import Bytes

PARTS = ("train.bin", "test.bin")
NAMES = ("coarse_label_names.txt", "fine_label_names.txt")
SIDE = 32
RECORD = 2 + 3 * SIDE**2
"""Bytes per image: group, class, red, green, blue."""


def cifar_100(archive: Path) -> ImageSet:
    """All photographs of the archive of the binary version, by `group/class`; read once per process."""
    return _read(version_of(archive))


@lru_cache(maxsize=1)
def _read(archive: FileVersion) -> ImageSet:
    expected = {*PARTS, *NAMES}
    contents = {
        name.rpartition("/")[2]: part for name, part in members(archive.path, lambda n: n.split("/")[-1] in expected)
    }
    missing = sorted(expected - contents.keys())
    require(
        not missing, archive.path.name, f"an archive with {', '.join(sorted(expected))}", f"no {', '.join(missing)}"
    )
    records = np.concatenate([_records(contents[part], part) for part in PARTS])
    groups, things = (_names(contents[part]) for part in NAMES)
    valid = records[:, 0].max() < len(groups) and records[:, 1].max() < len(things)
    require(bool(valid), archive.path.name, "an archive with names of groups and classes", "another")
    return _by_class(records, groups, things)


def _by_class(records: Bytes, groups: list[str], things: list[str]) -> ImageSet:
    names = np.array([f"{groups[group]}/{things[thing]}" for group, thing in records[:, :2]])
    order = names.argsort(kind="stable")
    labels, counts = np.unique(names, return_counts=True)
    images = records[order, 2:].reshape(-1, 3, SIDE, SIDE)
    starts = np.concatenate([[0], counts.cumsum()])
    return ImageSet(tuple(map(str, labels)), starts, images, digest_of({"": [("", records.tobytes())]}))


def _records(content: bytes, name: str) -> Bytes:
    whole = len(content) > 0 and len(content) % RECORD == 0
    require(whole, name, f"a file of records of {RECORD} bytes", f"{len(content):,} bytes")
    return np.frombuffer(content, np.uint8).reshape(-1, RECORD)


def _names(content: bytes) -> list[str]:
    return content.decode("ascii", "replace").split()
