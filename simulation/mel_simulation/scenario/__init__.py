"""What is simulated: configuration, learners, data, network, and what they come to."""
