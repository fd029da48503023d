"""Shared foundations: errors, files, arguments, padding, precision. Nothing here depends on another part."""
