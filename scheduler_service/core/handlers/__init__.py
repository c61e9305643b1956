"""What each request and report means for the state: one file for each subject."""
