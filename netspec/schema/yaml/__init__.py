"""The YAML reader: text → a tree of located values."""
