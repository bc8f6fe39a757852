"""The null backend: plans memory and kernels for hardware that need not be there; computes nothing."""
