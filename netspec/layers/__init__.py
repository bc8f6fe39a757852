"""Layers, losses and metrics: what a user writes, one file per family."""
