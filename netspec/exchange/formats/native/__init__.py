"""netspec's own files (HDF5, npz), and safetensors."""
