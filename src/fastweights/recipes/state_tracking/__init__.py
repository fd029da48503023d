"""Word problems of groups, which need a recurrent memory."""
