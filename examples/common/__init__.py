"""What runs the gallery and watches it; no part of the projects themselves."""
