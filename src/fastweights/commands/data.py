"""Finds or downloads the files of a data set, or lists the data sets.

Files are searched in the folder of the environment variable FASTWEIGHTS_DATA, then in the cache, ~/.cache/fastweights.
Downloads are verified by a checksum, and stored in the cache. Some data sets cannot be downloaded automatically: for
these, the command prints a URL and the path for the file.
"""

import argparse

from fastweights.commands._columns import columns
from fastweights.registry import DATA_SETS


def add(command: argparse.ArgumentParser) -> None:
    """Adds the name of a data set."""
    names = f"Name of a data set: {', '.join(DATA_SETS.names())}."
    command.add_argument("name", nargs="?", metavar="NAME", help=names)


def run(options: argparse.Namespace) -> int:
    """Prints the path of each file, or one line per data set."""
    if options.name is None:
        print(columns({name: DATA_SETS.docstring(name) for name in DATA_SETS.names()}))
        return 0
    data_set = DATA_SETS.load(options.name)
    print(f"{DATA_SETS.docstring(options.name)} {data_set.size}. Licence: {data_set.licence}. See {data_set.page}")
    for file in data_set.files:
        print(f"{file.path}: {file.fetch()}", flush=True)
    return 0
