"""Shared by transforms of images: fields and base class, images as arrays, resampling with Pillow and NumPy."""
