"""Who exchanges cells with whom (HiveD, section 3.3)."""
