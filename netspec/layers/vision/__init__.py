"""Layers that resample images: resizing, grid sampling, regions of interest."""
