"""Keras files."""
