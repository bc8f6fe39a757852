"""Initializers: the first values of parameters."""
