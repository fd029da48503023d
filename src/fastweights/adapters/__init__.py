"""Memories where users already are: in other libraries, and under the names that these have for them."""
