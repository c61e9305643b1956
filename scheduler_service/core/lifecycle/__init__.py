"""How jobs, gangs and nodes fare: endings, gang starts, node health and device faults."""
