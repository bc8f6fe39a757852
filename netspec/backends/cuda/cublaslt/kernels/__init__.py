"""Kernels that run cuBLASLt's matrix products."""
