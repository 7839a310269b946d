"""Ends the program in a call, as a script would."""

import sys

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        sys.exit(0)


def build():
    return Model(), (torch.ones(2),)
