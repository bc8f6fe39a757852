"""Activation functions, and layers of them."""
