"""``flwr-mel doctor``: whether a device is ready to take part."""
