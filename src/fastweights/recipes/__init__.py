"""One file an experiment: a frozen dataclass, whose fields are the flags of the command line, with its presets."""
