"""Use of trained nets: predictions, evaluations, generated texts and explanations, and their files."""
