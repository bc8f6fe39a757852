"""Devices, kernels and bound programs, with one folder per backend."""
