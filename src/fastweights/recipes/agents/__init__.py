"""Agents in environments that need a memory: an experiment of ours."""
