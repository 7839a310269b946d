"""benchbench: compare the ways PyTorch can execute a model, and say how far to trust it."""

__version__ = "0.1.0.dev0"
