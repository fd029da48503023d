"""Targets: a folder per kind of device, and the parts that all targets share."""
