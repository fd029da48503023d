"""Kinds of tasks, one per file. A loop in `training/loops` trains on any task of its kind."""
