"""Sample-level differential privacy with Opacus."""
