"""One global cycle in plain Python: no Flower types, every state a value."""
