"""Import rules for Caffe's layers, one module for each family. Modules are found by scanning."""
