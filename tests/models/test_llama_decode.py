"""The decode step: one graph for all positions, the right tokens, and a rewind in place."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
import torch

from benchbench.models import Workload, llama
from benchbench.models.common import random_tokens

PROMPT, STEPS, BATCH, VOCAB = 8, 20, 2, 512
SOURCES = [
    "own",
    pytest.param(
        "transformers",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("transformers") is None, reason="transformers is not there"
        ),
    ),
]


def build(source: str, workload: str = "decode", **options: Any) -> Workload:
    torch.manual_seed(3)
    return llama.build(
        **{
            "device": torch.device("cpu"),
            "dtype": torch.float32,
            "batch_size": BATCH,
            "seq_len": PROMPT,
            "workload": workload,
            "source": source,
            "seed": 5,
            "max_cache_len": None if workload == "prefill" else 40,
            **options,
        }
    )


@torch.no_grad()
def generate(step: Any, first: torch.Tensor, steps: int) -> tuple[list[int], list[torch.Tensor]]:
    tokens, logits, token = [], [], first
    for _ in range(steps):
        out = step(token).clone()
        logits.append(out)
        token = out.argmax(-1)
        tokens += token.flatten().tolist()
    return tokens, logits


@torch.no_grad()
def recompute(first: torch.Tensor, steps: int) -> list[int]:
    """Read the whole growing text anew for each token: no cache at all."""
    model = build("own", "prefill").module
    text = torch.cat([random_tokens((BATCH, PROMPT), VOCAB, 5), first], dim=1)
    tokens: list[int] = []
    for _ in range(steps):
        token = model(text).argmax(-1)
        text = torch.cat([text, token], dim=1)
        tokens += token.flatten().tolist()
    return tokens


@pytest.mark.parametrize("source", SOURCES)
def test_one_graph_for_all_positions_and_the_tokens_of_a_recompute(source: str) -> None:
    workload = build(source)
    first = workload.make_inputs(1).args[0]
    graphs: list[Any] = []

    def counting(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    step = torch.compile(workload.module, backend=counting, fullgraph=True)
    tokens, logits = generate(step, first, STEPS)
    assert len(graphs) == 1
    assert tokens == recompute(first, STEPS)

    assert workload.reset is not None
    workload.reset()
    again, same_logits = generate(step, first, STEPS)
    assert len(graphs) == 1, "rewinding must not recompile"
    assert again == tokens
    assert all(torch.equal(a, b) for a, b in zip(logits, same_logits, strict=True))


def state(workload: Workload) -> dict[str, torch.Tensor]:
    found = dict(workload.module.named_buffers())
    if workload.state is not None:
        found |= workload.state()
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_reset_restores_the_state_in_place(source: str) -> None:
    """Case 29: the state after a reset is the state right after building, at the same address."""
    workload = build(source)
    fresh = {name: tensor.clone() for name, tensor in state(workload).items()}
    addresses = {name: tensor.data_ptr() for name, tensor in state(workload).items()}
    generate(workload.module, workload.make_inputs(1).args[0], 3)
    moved = {
        name for name, tensor in state(workload).items() if not torch.equal(tensor, fresh[name])
    }
    assert any("keys" in name for name in moved)
    assert any("position" in name or "cumulative_length" in name for name in moved)
    assert workload.reset is not None
    workload.reset()
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in state(workload).items())
    assert addresses == {name: tensor.data_ptr() for name, tensor in state(workload).items()}


@pytest.mark.parametrize("source", SOURCES)
def test_takes_just_as_many_calls_as_it_says(source: str) -> None:
    workload = build(source, max_cache_len=PROMPT + 3)
    assert workload.max_calls == 3
    first = workload.make_inputs(1).args[0]
    generate(workload.module, first, 3)
    with pytest.raises((IndexError, RuntimeError)):
        generate(workload.module, first, 1)


@pytest.mark.parametrize("source", SOURCES)
def test_notes_and_items(source: str) -> None:
    workload = build(source, max_cache_len=None)
    assert workload.notes[1] == f"decode: prompt {PROMPT}, max_cache_len {PROMPT + 128}"
    assert (workload.items, workload.item) == (BATCH, "tokens")
    prefill = build(source, "prefill")
    assert (prefill.items, prefill.item) == (BATCH * PROMPT, "tokens")


@pytest.mark.parametrize("source", SOURCES)
def test_widening_takes_the_cache_along(source: str) -> None:
    """A float64 reference must read and write a float64 cache."""
    workload = build(source)
    first = workload.make_inputs(1).args[0]
    _, narrow = generate(copy.deepcopy(workload.module), first, 3)
    workload.module.double()
    _, wide = generate(workload.module, first, 3)
    assert all(
        tensor.dtype is torch.float64
        for name, tensor in state(workload).items()
        if tensor.is_floating_point()
    )
    for a, b in zip(narrow, wide, strict=True):
        assert b.dtype is torch.float64
        assert (a - b).abs().max() < 1e-4
    assert workload.reset is not None
    workload.reset()
    assert torch.equal(generate(workload.module, first, 1)[1][0], wide[0])
