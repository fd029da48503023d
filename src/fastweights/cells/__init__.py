"""One file a cell: its state and one step of one head. Rules need none: `Cell.named` makes their memory."""
