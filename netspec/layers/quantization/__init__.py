"""Layers that quantize, and that compute with quantized integers."""
