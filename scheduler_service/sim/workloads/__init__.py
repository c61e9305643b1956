"""What comes to a simulated cluster: generators, and readers and writers of what came to real ones."""
