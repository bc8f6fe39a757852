"""Drawings of nets."""
