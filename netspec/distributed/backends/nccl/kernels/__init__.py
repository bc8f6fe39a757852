"""Kernels of communication between GPUs, one module per family of operations."""
