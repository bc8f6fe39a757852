"""Readers of container formats that trust nothing in a file: HDF5, zip, protocol buffers."""
