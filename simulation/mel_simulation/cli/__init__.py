"""The commands that the simulation adds to ``flwr-mel``, found through entry points."""
