"""HiveD (OSDI 2020): guaranteed work in the cells of its virtual cluster, opportunistic work in any idle ones."""
