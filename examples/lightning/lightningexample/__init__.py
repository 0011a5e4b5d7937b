"""A Lightning module on handwritten digits."""
