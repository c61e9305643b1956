"""AlloX (EuroSys 2020): which job runs on which of its interchangeable devices, and when, by exact matching."""
