"""Every family, in both sources: it runs, it is one graph, and a mistake in it shows."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.nn import functional

from benchbench import paths, targets
from benchbench.errors import LoadError
from benchbench.models import Workload, common, llama

CPU = torch.device("cpu")
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
FAMILIES = ("llama", "bert", "vit", "resnet", "mlp")
FULL_MILLIONS = {"llama": 8030.26, "bert": 109.48, "vit": 86.57, "resnet": 25.56, "mlp": 151.03}

needs_transformers = pytest.mark.skipif(
    not HAS_TRANSFORMERS, reason="transformers is not installed: pip install 'benchbench[models]'"
)
BUILDS = [
    pytest.param(family, workload, source, marks=[needs_transformers] * (source != "own"))
    for family in FAMILIES
    for workload in (("prefill", "decode") if family == "llama" else ("forward",))
    for source in (("own", "transformers") if family != "mlp" else ("own",))
]


def config(family: str) -> dict[str, Any]:
    text = (paths.shipped("configs") / "model" / f"{family}.yaml").read_text()
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def build(
    family: str,
    workload: str = "forward",
    source: str = "own",
    *,
    size: str = "tiny",
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
    batch_size: int = 2,
) -> Workload:
    """Build what the shipped YAML describes, as the plan and the loader would."""
    settings = config(family)
    options = dict(settings["sizes"][size])
    if family != "mlp":
        options["source"] = source
    if family == "llama":
        options["workload"] = workload
    if settings["seq_len"] is not None:
        options["seq_len"] = 24
    builder = targets.resolve(settings["_target_"])
    assert callable(builder)
    torch.manual_seed(0)
    made = builder(device=device, dtype=dtype, batch_size=batch_size, **options)
    assert isinstance(made, Workload)
    return made


def tensors(output: Any) -> list[torch.Tensor]:
    return [output] if isinstance(output, torch.Tensor) else list(output)


@torch.no_grad()
def call(workload: Workload, seed: int = 1) -> list[torch.Tensor]:
    made = workload.make_inputs(seed)
    return [output.clone() for output in tensors(workload.module(*made.args, **made.kwargs))]


def relmax(wrong: list[torch.Tensor], right: list[torch.Tensor]) -> float:
    return max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(wrong, right, strict=True)
    )


@pytest.mark.parametrize(("family", "workload", "source"), BUILDS)
def test_runs_and_is_one_graph(family: str, workload: str, source: str) -> None:
    made = build(family, workload, source)
    eager = call(made)
    assert all(torch.isfinite(output).all() for output in eager)
    assert all(output.std() > 0.1 for output in eager)
    assert not made.module.training

    graphs: list[torch.fx.GraphModule] = []

    def counting(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    if made.reset is not None:
        made.reset()
    compiled = torch.compile(made.module, backend=counting, fullgraph=True)
    with torch.no_grad():
        outputs = [tensors(compiled(*made.make_inputs(seed).args)) for seed in (1, 2)]
    assert len(graphs) == 1
    assert relmax(outputs[0], eager) < 1e-5


@pytest.mark.parametrize(("family", "workload", "source"), BUILDS)
def test_full_size_is_the_public_one(family: str, workload: str, source: str) -> None:
    """Counted on the meta device, against the published parameter counts."""
    made = build(family, workload, source, size="full", device=torch.device("meta"))
    count = sum(parameter.numel() for parameter in made.module.parameters())
    assert count / 1e6 == pytest.approx(FULL_MILLIONS[family], abs=0.01)


@pytest.mark.parametrize(("family", "workload", "source"), BUILDS)
def test_inputs_follow_the_seed(family: str, workload: str, source: str) -> None:
    made = build(family, workload, source)
    first, again, other = (made.make_inputs(seed).args for seed in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(("family", "workload", "source"), BUILDS)
def test_built_in_its_dtype(family: str, workload: str, source: str) -> None:
    before = torch.get_default_dtype()
    made = build(family, workload, source, dtype=torch.bfloat16)
    assert torch.get_default_dtype() is before
    assert {parameter.dtype for parameter in made.module.parameters()} == {torch.bfloat16}
    assert all(output.dtype is torch.bfloat16 for output in call(made))
    if family == "llama":
        found = [buffer for name, buffer in made.module.named_buffers() if "inv_freq" in name]
        assert {buffer.dtype for buffer in found} == {torch.float32}


@needs_transformers
@pytest.mark.parametrize(
    ("family", "workload"),
    [(f, w) for f in FAMILIES if f != "mlp" for w in (config(f)["workloads"])],
)
def test_own_source_computes_what_transformers_computes(family: str, workload: str) -> None:
    """Equal seeds give equal weights, so the outputs must be equal but for rounding."""
    own, theirs = (build(family, workload, source) for source in ("own", "transformers"))
    for seed in (1, 2):
        assert relmax(call(own, seed), call(theirs, seed)) < 1e-5
    assert (own.items, own.item) == (theirs.items, theirs.item)
    assert own.notes[0] == "source: own"
    assert theirs.notes[0].startswith("source: transformers ")


@pytest.mark.parametrize("source", ["own", pytest.param("transformers", marks=needs_transformers)])
@pytest.mark.parametrize("workload", ["prefill", "decode"])
def test_wrong_rotary_frequencies_show(workload: str, source: str) -> None:
    """A weak initialisation would hide this below the rounding of bfloat16."""
    made = build("llama", workload, source)
    right = call(made)
    if made.reset is not None:
        made.reset()
    for name, buffer in made.module.named_buffers():
        if name.endswith("inv_freq"):
            buffer.mul_(1.01)
    assert relmax(call(made), right) > 1e-3


@pytest.mark.parametrize("source", ["own", pytest.param("transformers", marks=needs_transformers)])
def test_lost_causal_mask_shows(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build("llama", "prefill", source)
    right = call(made)
    attend = functional.scaled_dot_product_attention

    def unmasked(*args: Any, **kwargs: Any) -> torch.Tensor:
        return attend(*args, **{**kwargs, "is_causal": False, "attn_mask": None})

    monkeypatch.setattr(functional, "scaled_dot_product_attention", unmasked)
    assert relmax(call(made), right) > 1e-3


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_lost_attention_shows(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build(family)
    right = call(made)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda q, k, v: v)
    assert relmax(call(made), right) > 1e-3


def test_left_out_batch_norm_shows() -> None:
    made = build("resnet")
    right = call(made)
    for part in made.module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.reset_running_stats()
    assert relmax(call(made), right) > 1e-3


def test_building_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a model reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for family in FAMILIES:
        source = "auto" if family != "mlp" else "own"
        call(build(family, config(family)["workloads"][0], source))


@pytest.mark.parametrize("source", ["own", "auto"])
def test_torch_alone_is_enough(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # importing it raises ImportError
    for family in FAMILIES:
        made = build(family, config(family)["workloads"][0], source)
        call(made)
        assert made.notes == (() if family == "mlp" else ("source: own",))


def test_transformers_asked_for_but_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured never changes silently."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LoadError, match="transformers is not installed") as raised:
        common.choose_source("transformers")
    assert "source=own" in str(raised.value)
    assert common.choose_source("auto") == ("own", "source: own")


def test_unknown_source_and_workload() -> None:
    with pytest.raises(LoadError, match="did you mean 'transformers'"):
        common.choose_source("transformer")
    with pytest.raises(LoadError, match="did you mean 'decode'"):
        common.check_workload("decod", llama.WORKLOADS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seq_len": 4096}, "4096 tokens are more than max_position_embeddings=2048"),
        ({"workload": "decode", "max_cache_len": 24}, "no room behind a prompt of seq_len=24"),
        ({"num_attention_heads": 3}, "hidden_size=64 is not a multiple of"),
        ({"num_key_value_heads": 3}, "num_attention_heads=4 is not a multiple of"),
    ],
)
def test_sizes_that_do_not_fit(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LoadError, match=said):
        llama.build(
            **{
                "device": CPU,
                "dtype": torch.float32,
                "batch_size": 1,
                "seq_len": 24,
                **options,
            }
        )


def test_every_family_has_a_yaml_and_a_test() -> None:
    found = {path.stem for path in (paths.shipped("configs") / "model").glob("*.yaml")}
    files = {path.stem for path in (Path(llama.__file__).parent).glob("*.py")}
    assert files - {"__init__", "common"} <= found
    assert set(FAMILIES) <= found
