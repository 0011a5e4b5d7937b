"""A strategy with a start of its own: checkpoints and results.json."""
