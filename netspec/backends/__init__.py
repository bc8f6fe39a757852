"""What runs programs: devices, their kernels, and the bound program. One folder a backend."""
