"""What memories hold: what was written, forgotten and read at every step.

>>> import torch
>>> from fastweights.inspect import look_into, watch
>>> from fastweights.layers import make_layer
>>> model = torch.nn.Sequential(make_layer("delta-net", 8, heads=2))
>>> with watch(model) as scans:
...     y, state = model(torch.randn(1, 5, 8))
>>> found = look_into(scans[0])
>>> found.name, found.attention.shape
('0', torch.Size([2, 5, 5]))
"""

from fastweights.inspect.contents import Contents, look_into
from fastweights.inspect.episode import Episode, watch_episode
from fastweights.inspect.page import page
from fastweights.inspect.rates import rate_ranges
from fastweights.inspect.text import watch_text
from fastweights.inspect.watch import Watched, watch

__all__ = [
    "Contents",
    "Episode",
    "Watched",
    "look_into",
    "page",
    "rate_ranges",
    "watch",
    "watch_episode",
    "watch_text",
]
