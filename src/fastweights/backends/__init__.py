"""One file a way to run a cell over time: `run(problem)`, `refusal(problem, build)` and `cost(problem)`."""
