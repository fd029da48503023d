"""From the step of a cell to the compiler's own language: tracing and lowering."""
