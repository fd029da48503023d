"""Elementary programming instructions: one file a rule, one head, one step, W -> W."""
