"""The paper's experiment as a Flower app."""
