"""Many runs at once: cells of a grid, their schedules, training and results."""
