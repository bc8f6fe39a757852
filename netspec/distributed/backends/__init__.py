"""Kernels of communication operations: `mpi` for arrays of the processor, `nccl` for arrays of GPUs."""
