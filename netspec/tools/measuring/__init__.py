"""Measured times of steps: by layer, by operation, of communication, and as a trace."""
