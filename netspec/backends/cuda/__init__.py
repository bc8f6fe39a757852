"""The GPU, through CuPy. So far it runs the reference kernels, on arrays in its memory."""
