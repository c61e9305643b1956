"""How resources change hands: transitions of runs, bindings of cells, earmarks and guarantees."""
