"""``flwr-mel profile``: the command, and how it is printed."""
