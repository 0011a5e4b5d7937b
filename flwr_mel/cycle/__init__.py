"""One global cycle in plain Python, without Flower types: `plan` hands out tasks, `settle` takes the replies."""
