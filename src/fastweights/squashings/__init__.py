"""Squashings: one file, one function that brings a rate into its range."""
