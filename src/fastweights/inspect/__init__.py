"""Inspection of memories: writes, decay and reads at every step.

>>> import torch
>>> from fastweights.inspect import analyze, record_scans
>>> from fastweights.layers import make_layer
>>> model = torch.nn.Sequential(make_layer("delta-net", 8, num_heads=2))
>>> with record_scans(model) as scans:
...     y, state = model(torch.randn(1, 5, 8))
>>> contents = analyze(scans[0])
>>> contents.name, contents.attention.shape
('0', torch.Size([2, 5, 5]))
"""

from fastweights.inspect.episode import Episode, analyze_episode
from fastweights.inspect.memory_trace import MemoryTrace, analyze
from fastweights.inspect.page import render_html
from fastweights.inspect.rates import rate_ranges
from fastweights.inspect.recorded_scan import RecordedScan, record_scans
from fastweights.inspect.text import analyze_text

__all__ = [
    "Episode",
    "MemoryTrace",
    "RecordedScan",
    "analyze",
    "analyze_episode",
    "analyze_text",
    "rate_ranges",
    "record_scans",
    "render_html",
]
