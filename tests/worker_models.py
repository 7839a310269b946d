"""Small models, well-behaved and stubborn ones, for the tests of the worker."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchbench.models import Inputs, Workload


class Does(nn.Module):
    """A module whose forward is a function of itself and its input."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.calls = 0
        self._does = forward

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return self._does(self, x)


def workload(forward: Callable[..., Any], **more: Any) -> Workload:
    def make_inputs(seed: int) -> Inputs:
        return Inputs((torch.randn(4, generator=torch.Generator().manual_seed(seed)),))

    return Workload(module=Does(forward), make_inputs=make_inputs, items=3, item="tokens", **more)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + 1


def good() -> Workload:
    made = workload(lambda self, x: x)
    return Workload(module=Plain(), make_inputs=made.make_inputs, items=3, item="tokens")


def first_call_sleeps() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        if self.calls == 1:
            time.sleep(0.2)
        return x + 1

    return workload(forward)


def prints_garbage() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        if self.calls == 1:
            os.write(1, bytes(range(256)))
            print('{"measurement": {"phase_s": {}}}')
            os.write(2, "坏".encode("gbk"))
        return x + 1

    return workload(forward)


def exits_while_built() -> Workload:
    sys.exit(0)


def exits_in_forward() -> Workload:
    return workload(lambda self, x: sys.exit(3))


def leaves_without_a_word() -> Workload:
    return workload(lambda self, x: os._exit(0))


def raises_keyboard_interrupt() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> None:
        raise KeyboardInterrupt

    return workload(forward)


def memory_error() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> None:
        raise MemoryError

    return workload(forward)


def too_large() -> Workload:
    return workload(lambda self, x: torch.empty(1 << 50))


def long_error() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> None:
        raise RuntimeError("first | line\n" + "更多 " * 2_000_000)

    return workload(forward)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def unprintable_error() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> None:
        raise UnprintableError

    return workload(forward)


def segfault_in_warmup() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        if self.calls == 3:
            ctypes.string_at(0)
        return x + 1

    return workload(forward)


def killed() -> Workload:
    return workload(lambda self, x: os.kill(os.getpid(), 9))


def kills_itself_at_exit() -> Workload:
    import atexit

    atexit.register(lambda: ctypes.string_at(0))
    return good()


def leaves_a_thread_behind() -> Workload:
    threading.Thread(target=time.sleep, args=(0.3,)).start()
    return good()


def hangs() -> Workload:
    return workload(lambda self, x: threading.Event().wait())


def settles_late() -> Workload:
    """20 ms for 12 calls, 2 ms afterwards."""

    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02 if self.calls <= 12 else 0.002)
        return x + 1

    return workload(forward)


def one_enormous_sample() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.4 if self.calls == 100 else 0.002)
        return x + 1

    return workload(forward)


def slow() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.25)
        return x + 1

    return workload(forward)


def grows() -> Workload:
    kept: list[torch.Tensor] = []

    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002)
        kept.append(torch.ones(1 << 19))  # 2 MiB
        return x + 1

    return workload(forward)


def makes_cycles() -> Workload:
    """Garbage that only the collector finds: 2 MiB per call, nothing of it alive."""

    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002)
        cycle: list[Any] = [torch.ones(1 << 19)]
        cycle.append(cycle)
        return x + 1

    return workload(forward)


def memoises() -> Workload:
    known: dict[int, torch.Tensor] = {}

    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        if id(x) not in known:
            time.sleep(0.02)
            known[id(x)] = x + 1
        return known[id(x)]

    return workload(forward)


def memoises_last() -> Workload:
    """Remembers only the last input: alternating inputs make it work."""
    last: dict[str, Any] = {"key": None}

    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        if id(x) != last["key"]:
            time.sleep(0.005)
            last["key"], last["value"] = id(x), x + 1
        return last["value"]

    return workload(forward)


class Promise(torch.Tensor):
    """A wrapper whose work is done in a thread, joined by the first op that reads it."""

    @staticmethod
    def __new__(cls, like: torch.Tensor, work: Callable[[], torch.Tensor]) -> Promise:
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)

    def __init__(self, like: torch.Tensor, work: Callable[[], torch.Tensor]) -> None:
        self._result: list[torch.Tensor] = []
        self._thread = threading.Thread(target=lambda: self._result.append(work()))
        self._thread.start()

    def value(self) -> torch.Tensor:
        self._thread.join()
        return self._result[0]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(value: Any) -> Any:
            return value.value() if isinstance(value, Promise) else value

        return func(*torch.utils._pytree.tree_map(unwrap, args), **(kwargs or {}))


def lazy() -> Workload:
    def forward(self: Does, x: torch.Tensor) -> torch.Tensor:
        def work() -> torch.Tensor:
            time.sleep(0.01)
            return x + 1

        return Promise(x, work)

    return workload(forward)


class Decoder(nn.Module):
    """Writes one row of a cache per call; it takes six calls, then it must be reset."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 4))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, self.position.reshape(1), x.reshape(1, 4))
        self.position += 1
        return self.cache.sum(0)

    def reset(self) -> None:
        self.cache.zero_()
        self.position.zero_()


def decoder() -> Workload:
    module = Decoder()
    made = good()
    return Workload(
        module=module, make_inputs=made.make_inputs, items=1, reset=module.reset, max_calls=6
    )


class Counting(nn.Module):
    """A buffer that counts the calls and goes into the output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x + self.n


def counting() -> Workload:
    made = good()
    return Workload(module=Counting(), make_inputs=made.make_inputs, items=1)


class Steps(nn.Module):
    """An int attribute that changes with every call: each one recompiles."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x + self.step


def steps() -> Workload:
    return Workload(module=Steps(), make_inputs=good().make_inputs, items=1)


def heavy() -> Workload:
    """64 MiB of weights, next to no activations."""
    module = nn.Linear(4096, 4096, bias=False)

    def make_inputs(seed: int) -> Inputs:
        return Inputs((torch.randn(1, 4096, generator=torch.Generator().manual_seed(seed)),))

    return Workload(module=module, make_inputs=make_inputs, items=1)


# ---- backends that stand in for a compiler -------------------------------------------------


def hungry_backend(gm: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Any:
    """Needs 200 MiB while it compiles, and gives them back."""
    scratch = torch.ones(50 << 20)
    del scratch
    return gm.forward


def wrong_backend(gm: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Any:
    """Right in the first call, wrong in every second one."""
    calls = 0

    def run(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        outputs = gm.forward(*args)
        return outputs if calls % 2 else tuple(output * 1.5 for output in outputs)

    return run


def failing_backend(gm: torch.fx.GraphModule, example_inputs: list[Any], **_: Any) -> Any:
    raise NotImplementedError("no converter for torch.ops.aten.add.Tensor\nfull text below")


@torch.library.custom_op("bbtest::gap_a", mutates_args=())
def gap_a(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.library.custom_op("bbtest::gap_b", mutates_args=())
def gap_b(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def without_metas() -> Workload:
    return workload(lambda self, x: gap_b(gap_a(x)) + gap_a(x))


@torch.library.custom_op("bbtest::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.double()


doubled.register_fake(torch.empty_like)


def wrong_meta() -> Workload:
    return workload(lambda self, x: doubled(x) + 1)
