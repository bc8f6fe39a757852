"""Safe readers of container formats: HDF5, zip, protocol buffers."""
