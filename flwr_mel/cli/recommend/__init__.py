"""``flwr-mel recommend``: the command, cross-validation of c, and how it is printed."""
