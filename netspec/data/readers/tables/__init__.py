"""Tables: files in blocks of rows, columns as arrays, and the dataset that they make."""
