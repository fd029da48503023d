"""One file an experiment: its `EXPERIMENT`, and where it stands on its own a frozen dataclass, whose fields are the
flags of `fastweights train`, with their presets."""
