"""In which order queued jobs are served."""
