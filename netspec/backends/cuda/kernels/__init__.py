"""Kernels in CUDA C++, one module for each family of ops."""
