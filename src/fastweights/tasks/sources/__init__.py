"""File formats, data sets and baselines that several tasks share."""
