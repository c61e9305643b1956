"""Gandiva (OSDI 2018): runs share devices, and how they do follows from what is measured of them."""
