"""The compiler's own language: nodes, steps of nodes, passes over them, and their meaning."""
