"""How layers are written in Caffe's: one module a family, found by scan; a rule goes by the layer's type."""
