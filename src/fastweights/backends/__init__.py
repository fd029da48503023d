"""One file a way to run a cell over time: `run(problem) -> (y, state)` and `refusal(problem) -> str`."""
