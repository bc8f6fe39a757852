"""The spec language: the YAML reader, the spec classes, and all errors in specs."""
