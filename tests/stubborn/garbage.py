"""Prints all byte values, a line that looks like a result, 20 MB of text, and Chinese in GBK."""

import os

import torch


class Model(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            os.write(1, bytes(range(256)))
            print('\n{"status": "ok", "measurement": {"phase_s": {}, "samples": []}}')
            os.write(2, "流资源不足\n".encode("gbk"))
            for _ in range(20):
                print("x" * 2**20)
        return x + 1


def build():
    return Model(), (torch.ones(2),)
