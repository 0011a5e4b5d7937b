"""Training on a fleet of real devices, each with its own share of the work."""
