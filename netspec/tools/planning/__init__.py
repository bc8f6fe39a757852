"""Costs of a training that need not be possible here: memory, arithmetic and time, of GPUs and several workers too."""
