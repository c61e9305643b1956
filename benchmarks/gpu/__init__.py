"""Parking measured on a GPU. Needs a Python with PyTorch, and nothing else of Ebb's environment."""
