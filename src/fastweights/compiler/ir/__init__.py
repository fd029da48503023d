"""The intermediate representation: nodes, steps, passes over time, and their meaning."""
