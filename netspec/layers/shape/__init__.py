"""Layers that reshape, pad, slice, index or reorder their input."""
