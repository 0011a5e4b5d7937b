"""A CNN with BatchNorm on MNIST."""
