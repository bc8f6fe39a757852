"""Verify a device: its kernels on samples against the reference, and small trainings against the CPU."""
