"""Training: one explicit loop per kind of experiment, and run folders, checkpoints and progress for all loops."""
