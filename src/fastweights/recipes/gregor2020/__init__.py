"""Gregor 2020: Finding online neural update rules by learning to remember."""
