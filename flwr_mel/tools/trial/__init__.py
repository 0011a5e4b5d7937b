"""``flwr-mel try``: a Flower app on a virtual fleet, as it is and planned."""
