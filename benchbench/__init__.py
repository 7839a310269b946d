"""benchbench: compare the ways PyTorch can execute a model, and know how far to trust the answer."""

__version__ = "0.1.0.dev0"
