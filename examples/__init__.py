"""A gallery: ordinary Flower projects, and the few lines that make each heterogeneity-aware."""
