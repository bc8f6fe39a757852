"""What each type of Caffe's layers becomes, one family a file. A file put here is found by itself."""
