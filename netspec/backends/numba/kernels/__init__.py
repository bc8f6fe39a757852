"""Kernels compiled by numba, one module for each family of ops."""
