"""Training on a fleet of unequal devices: each gets the epochs and samples that it can do."""
