"""Kernels of communication operations: `mpi` for arrays of the CPU, `nccl` for arrays of GPUs."""
