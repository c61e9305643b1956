"""What a checkpoint is on the disk: files that are whole or absent, their formats, and how a state gets there and back."""
