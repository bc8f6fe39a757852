"""Passes: graph in, graph out, one per file."""
