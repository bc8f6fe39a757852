"""Files from elsewhere: code that all readers of data and models share to refuse damaged and hostile files."""
