"""``flwr-mel plan``: the command, what a plan says, and how it is printed."""
