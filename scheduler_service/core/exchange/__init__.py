"""Cell exchange (HiveD, section 3.3): the book of offers and requests, and who owns what at a time."""
