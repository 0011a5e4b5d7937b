"""``flwr-mel server``: set a server up, run it, and say who may take part."""
