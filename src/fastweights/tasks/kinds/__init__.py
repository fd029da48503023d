"""Kinds of tasks by what they give, a file each: a loop in `training/loops` learns any task of its kind."""
