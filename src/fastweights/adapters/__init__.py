"""Adapters: memories in other libraries, and under the names of these libraries."""
