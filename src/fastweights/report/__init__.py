"""Reports on finished runs: tables and plots."""
