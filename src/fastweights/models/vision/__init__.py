"""How a picture becomes features: one file a network, each with the number of its `features`."""
