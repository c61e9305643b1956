"""Which runs are preempted for a job that does not fit."""
