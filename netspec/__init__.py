"""netspec: declarative neural networks, from YAML to a compiled training step."""
