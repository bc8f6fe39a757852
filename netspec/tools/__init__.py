"""The commands as functions with typed results. `netspec` exports them."""
