"""Agents that have to remember: a check of our own."""
