"""The compiler's frontend: tracing a cell, and lowering the trace to tensor expressions."""
