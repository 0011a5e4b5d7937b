"""The Flower app: server, virtual learners, and what a run leaves behind."""
