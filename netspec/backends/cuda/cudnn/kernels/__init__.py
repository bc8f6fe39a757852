"""Kernels that run cuDNN graphs."""
