"""Readers of files into arrays. Loaded when a source is opened, never to check a spec."""
