"""Feature maps phi: one file a map, a module with `output_size` that maps the last axis of size `size`."""
