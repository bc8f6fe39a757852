"""What YAML may say: the reader, the spec classes, and every way in which a spec can be wrong."""
