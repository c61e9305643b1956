"""Which queued job runs where and in what order, so that the sum of all completion times is least (AlloX, section 3)."""
