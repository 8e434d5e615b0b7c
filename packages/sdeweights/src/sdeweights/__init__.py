"""Partially stochastic weight processes."""
