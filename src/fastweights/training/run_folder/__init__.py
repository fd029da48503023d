"""A run folder: configuration, metrics, checkpoints and result of one training run."""
