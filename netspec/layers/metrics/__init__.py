"""Metrics, one module per family."""
