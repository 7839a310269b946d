"""Sleeps in C for ever at its tenth call and ignores SIGTERM."""

import ctypes
import signal

import torch


class Model(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 10:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                ctypes.CDLL(None).sleep(1000)
        return x + 1


def build():
    return Model(), (torch.ones(2),)
