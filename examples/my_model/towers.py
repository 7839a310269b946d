"""A model of your own, in a folder of your own: two towers that score users against items.

From the repository's root:

    python -m benchbench --config-dir examples/my_model/configs model=towers 'mode=[eager,inductor]'

Nothing of benchbench is imported here: a function that returns a module and its inputs is enough.
"""

import layers
import torch
from torch import nn


class Towers(nn.Module):
    """Ids of users and of items in, one score per pair out."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.user = layers.Tower(users, width)
        self.item = layers.Tower(items, width)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return (self.user(users) * self.item(items)).sum(-1)


def build(batch_size: int, users: int = 1000, items: int = 500, width: int = 64):
    """Return the module and a function that makes inputs for a seed.

    benchbench seeds the random generators, calls this with the arguments that it accepts, and
    moves the module to the device and dtype of the case.
    """

    def make_inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return (
            torch.randint(users, (batch_size,), generator=generator),
            torch.randint(items, (batch_size,), generator=generator),
        )

    return Towers(users, items, width).eval(), make_inputs
