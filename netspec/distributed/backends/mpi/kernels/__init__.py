"""Kernels of communication between processes, one module per family of operations."""
