"""Specialisations of a step: its guard decides which compiled kernel a call may use."""
