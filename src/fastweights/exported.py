"""All that an exported program can name: importing this lets `torch.export.load` read programs of any layer or model.

`import fastweights` sees to it that torch finds this when it first reads a program.
"""

from fastweights.catalogue import LAYERS, MODELS
from fastweights.cell import Cell
from fastweights.compiler import op

for _folder in (LAYERS, MODELS):
    for _name in _folder.names():
        _folder.load(_name)
CELLS = [Cell.named(name) for name in Cell.names()]
OPERATION = op.LIBRARY
