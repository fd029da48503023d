"""One explicit loop a kind of experiment, and what all of them need: run folders, checkpoints, progress."""
