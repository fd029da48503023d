"""Word problems of groups: what a memory without recurrence cannot follow."""
