"""Logistic regression on handwritten digits with scikit-learn."""
