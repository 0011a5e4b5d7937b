"""From results to the paper's figures, statements and what lies past it."""
