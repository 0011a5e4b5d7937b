"""A perceptron in plain numpy; epochs come with the message."""
