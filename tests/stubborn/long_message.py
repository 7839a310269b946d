"""Raises an error of 5 MB with newlines, tabs and pipes in it."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("流资源不足\n\t| not enough streams\r\n" + "| very\tlong\n" * 500_000)


def build():
    return Model(), (torch.ones(2),)
