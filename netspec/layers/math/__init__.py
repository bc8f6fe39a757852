"""Layers that apply mathematical functions."""
