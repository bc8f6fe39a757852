"""The training loop and what surrounds it: evaluation, checkpoints, logs, run directories."""
