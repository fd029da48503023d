"""Settings of training loops, one file for each loop of the same name in `loops`. Command-line flags are derived from
them, so no import is slow."""
