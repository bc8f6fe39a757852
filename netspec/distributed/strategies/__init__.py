"""Strategies: how several workers train one net. One file each, from its paper; found by scan."""
