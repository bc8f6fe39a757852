"""Rules that lift operators to layers, one family per module. Every module here is imported by `registry.rules`."""
