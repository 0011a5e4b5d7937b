"""A custom Server with its own loop; clients report batches."""
