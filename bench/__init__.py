"""Benchmarks; see the Makefile."""
