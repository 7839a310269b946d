"""Behaves: what stands next to it must not change its row."""

import torch


def build():
    return torch.nn.Linear(8, 8), (torch.ones(2, 8),)
