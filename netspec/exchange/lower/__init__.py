"""Lower nets to operator graphs."""
