"""Starting Flower's engine, following a run, ending everything."""
