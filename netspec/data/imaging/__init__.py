"""What transforms of images share: their fields and base class; images as arrays, through Pillow and NumPy."""
