"""One global cycle in plain Python, without Flower types: `plan` gives tasks, `settle` takes replies."""
