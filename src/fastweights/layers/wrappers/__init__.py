"""Layers that wrap other layers."""
