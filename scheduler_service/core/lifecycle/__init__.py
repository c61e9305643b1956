"""Life cycles of jobs, gangs and nodes: endings, gang starts, node health and device faults."""
