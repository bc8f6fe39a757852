"""The reference backend: every op in plain array code, and the oracle of all other backends."""
