"""One file a way to run a cell over time: `name(problem) -> (y, state)` and `refusal(problem) -> str`."""
