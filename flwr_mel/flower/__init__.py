"""What both strategies share and what may know Flower: reading and checking what learners send back."""
