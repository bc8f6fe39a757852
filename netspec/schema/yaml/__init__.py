"""The YAML reader: converts text to a tree of values with their locations."""
