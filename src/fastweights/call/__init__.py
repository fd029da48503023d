"""A call of `scan`: its tensors, its checks, and the record that every backend takes."""
