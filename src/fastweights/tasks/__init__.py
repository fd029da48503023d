"""Tasks: data and metric. A task knows no model."""
