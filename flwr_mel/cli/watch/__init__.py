"""``flwr-mel watch``: the command, where a run is, and the two ways to show it."""
