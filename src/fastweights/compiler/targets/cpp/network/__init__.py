"""The C++ of a network program."""
