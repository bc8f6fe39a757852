"""Process groups, which exchange arrays and messages between workers."""
