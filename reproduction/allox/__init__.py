"""AlloX's evaluation (EuroSys 2020), reproduced."""
