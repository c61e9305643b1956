"""FitGpp (trials preempt small best-effort runs with short grace periods), and the rules that it is compared with."""
