"""Vision encoders, one per file, each with the number of its `features`."""
