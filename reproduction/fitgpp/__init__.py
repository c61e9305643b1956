"""FitGpp's evaluation (arXiv 2019), reproduced."""
