"""Targets: one folder per kind of device, and the modules that all targets share."""
