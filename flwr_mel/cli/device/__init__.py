"""``flwr-mel device``: start a device, and say whether it is well."""
