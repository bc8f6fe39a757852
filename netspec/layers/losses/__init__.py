"""Losses, one module per family."""
