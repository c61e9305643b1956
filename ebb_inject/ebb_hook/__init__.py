"""Code that runs inside a training process: the step file, the hook for PyTorch's optimizers, and parking."""
