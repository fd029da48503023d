"""Parts that several layers share."""
