"""Attention layers and encodings of positions."""
