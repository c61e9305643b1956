"""What Ebb does with a GPU, measured on one."""
