"""What the commands do, as functions with typed results: check, plan, time, compare, predict, export and import."""
