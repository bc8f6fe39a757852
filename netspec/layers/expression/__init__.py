"""The layer Expression and its formulas."""
