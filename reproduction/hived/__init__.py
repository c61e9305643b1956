"""HiveD's evaluation (OSDI 2020), reproduced."""
