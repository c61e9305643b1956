"""Rows and values of virtual clusters and of the exchange between them."""
