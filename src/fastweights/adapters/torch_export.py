"""All that an exported program can name: importing this lets `torch.export.load` read programs of any layer or model.

`import fastweights` sees to it that torch finds this when it first reads a program.
"""

import fastweights.layers
import fastweights.models
from fastweights.cell import Cell
from fastweights.compiler import op

STATES = [fastweights.layers, fastweights.models, *map(Cell.from_name, Cell.names())]
"""What has told torch of the states that programs take and return."""
OPERATION = op.LIBRARY
