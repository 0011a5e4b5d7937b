"""The arena: our schemes against what people would use instead, on one virtual clock."""
