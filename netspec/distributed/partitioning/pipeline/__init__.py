"""Pipeline parallelism: a net cut into stages, through which micro-batches pass."""
