"""Many runs at once: cells of a grid, their rounds and results."""
