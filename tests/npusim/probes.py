"""What runs on the simulated NPU; ``python probes.py NAME OUT.json CONFIG.json``.

Each probe returns plain data for a test to judge. Nothing of torch is imported before the
simulation is active.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchbench import npusim

Result = dict[str, Any]


def error_of(call: Callable[[], object]) -> str | None:
    """Return type and text of what a call raises, of the inner error where torch wraps it."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the error is the result
        inner = getattr(error, "inner_exception", None) or error
        return f"{type(inner).__name__}: {inner}"
    return None


def worst(expected: Any, got: Any) -> float:
    """Return the largest absolute difference."""
    return float((expected - got.cpu()).abs().max())


def logits(output: Any) -> Any:
    """Return the tensor of a model's output."""
    return getattr(output, "logits", output)


def compiled(mode: str, function: Any, **options: Any) -> Any:
    """Return a function compiled as the two graph modes do."""
    import torch

    if mode == "npugraph_ex":
        return torch.compile(function, backend=mode, dynamic=False, options=options or None)
    import torchair

    config = torchair.CompilerConfig()
    config.ge_config.export_compile_stat = "0"
    for name, value in options.items():
        setattr(config.experimental_config, name, value)
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(function, backend=backend, dynamic=False)


def mlp() -> Any:
    """Return a small module that uses matmul, softmax and a norm."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).eval()


def llama() -> Any:
    """Return a llama of two layers, as transformers makes it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    ).eval()


class Counter:
    """A module with state: what a KV cache does, in small."""

    def __new__(cls) -> Any:
        import torch

        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("total", torch.zeros(4, 2))

            def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
                self.total.index_add_(0, at, x)
                return self.total * 2

        return Module()


# ---- probes ----------------------------------------------------------------------------------


def runtime(sim: npusim.Simulator) -> Result:
    """torch_npu alone, no kernels of ours: allocator, copies, casts, events, streams."""
    import torch

    npu = torch.npu
    free, total = npu.mem_get_info()
    wide = torch.arange(6.0).reshape(2, 3).to("npu")
    halves = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)
    floats = torch.cat(
        [halves.float(), torch.linspace(-70000, 70000, 4001), torch.randn(2000) * 1e-6]
    )
    with npu.stream(npu.Stream()):
        side = torch.full((2,), 7.5, device="npu")
    npu.synchronize()
    npu.reset_peak_memory_stats()
    before = npu.memory_allocated()
    torch.empty(1 << 20, dtype=torch.uint8, device="npu")
    peak = npu.max_memory_allocated() - before
    garbage = torch.ones(1, device="npu") + 1
    return {
        "name": npu.get_device_name(0),
        "count": npu.device_count(),
        "total": total,
        "cann": str(__import__("torch_npu").npu.utils.get_cann_version("CANN")),
        "ir": "MatMulV2" in sim.registered_ir(),
        "transposed": wide.t().contiguous().cpu().tolist(),
        "to_half": torch.equal(
            floats.to("npu").half().cpu().view(torch.int16)[65536:],
            floats.half().view(torch.int16)[65536:],
        ),
        "from_half": torch.equal(
            halves.to("npu").float().cpu().nan_to_num(1), halves.float().nan_to_num(1)
        ),
        "to_bfloat": torch.equal(
            floats.to("npu").bfloat16().cpu().nan_to_num(1), floats.bfloat16().nan_to_num(1)
        ),
        "int64": torch.tensor([2**53 + 1]).to("npu").to(torch.int32).cpu().tolist(),
        "side": side.cpu().tolist(),
        "peak": peak,
        "used": sim.used_bytes() >= total - npu.mem_get_info()[0] > 0,
        "kernel_without_numbers": garbage.cpu().tolist(),
        "oom": error_of(lambda: torch.empty(total + 1, dtype=torch.uint8, device="npu")),
        "alive_after_oom": torch.ones(2, device="npu").cpu().tolist(),
        "expected_free": free <= total,
    }


def clock(sim: npusim.Simulator) -> Result:
    """Twenty tasks of half a millisecond each."""
    import torch

    x = torch.ones(4, device="npu")
    _ = x + 1
    torch.npu.synchronize()
    sim.set_task_us(500)
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    begun = time.perf_counter()
    start.record()
    for _ in range(20):
        x = x + 1
    end.record()
    finished_when_enqueued = end.query()
    enqueue_s = time.perf_counter() - begun
    torch.npu.synchronize()
    return {
        "device_ms": start.elapsed_time(end),
        "enqueue_s": enqueue_s,
        "total_s": time.perf_counter() - begun,
        "finished_when_enqueued": finished_when_enqueued,
        "value": x.cpu().tolist(),
    }


def ops(sim: npusim.Simulator) -> Result:
    """Eager ops with numbers."""
    import torch

    kernels = sim.install_kernels()
    x = torch.arange(6.0).reshape(2, 3)
    d = x.to("npu")
    in_place = d.clone()
    alias = in_place[:, 1:]
    alias.add_(1).mul_(2)
    out = torch.empty(0, device="npu")
    torch.add(d, d, out=out)
    torch.manual_seed(3)
    random_on_device = torch.randn(4, device="npu").cpu()
    torch.manual_seed(3)
    module = mlp()
    batch = torch.randn(3, 8)
    with torch.no_grad():
        expected = module(batch)
        got = module.to("npu")(batch.to("npu"))
    train = torch.nn.Linear(3, 2)
    reference = train.weight.detach().clone()
    loss = train.to("npu")(d).pow(2).sum()
    loss.backward()
    q = torch.randn(1, 4, 5, 8)
    k, v = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    mine = sdpa(q.to("npu"), k.to("npu"), v.to("npu"), is_causal=True, enable_gqa=True)
    gamma = torch.randn(3)
    normed = torch.ops.npu.npu_rms_norm(d, gamma.to("npu"))[0]
    return {
        "routed": len(kernels.routed),
        "in_place": in_place.cpu().tolist(),
        "out": out.cpu().tolist(),
        "item": d.sum().item(),
        "mask": d[d > 2].cpu().tolist(),
        "topk": d.topk(2).values.cpu().tolist(),
        "view": d.t()[1:].cpu().tolist(),
        "print": repr(d),
        "random": torch.equal(random_on_device, torch.manual_seed(3) and torch.randn(4)),
        "module": worst(expected, got),
        "gradient": reference.shape == train.weight.grad.shape
        and float(train.weight.grad.abs().sum()) > 0,
        "attention": worst(sdpa(q, k, v, is_causal=True, enable_gqa=True), mine),
        "rms_norm": worst(torch.nn.functional.rms_norm(x, (3,), gamma, 1e-6), normed),
        "unknown": error_of(lambda: torch.ops.npu.npu_geglu(d.repeat(1, 2))),
        "clock": clock(sim),
    }


def state(sim: npusim.Simulator, mode: str) -> Result:
    """Updates in place, once per call, in a graph mode."""
    import torch

    torch._dynamo.reset()
    sim.reset_calls()
    on_cpu, on_npu = Counter(), Counter().to("npu")
    run = compiled(mode, on_npu)
    errors = []
    with torch.no_grad():
        for step in range(4):
            x, at = torch.full((2, 2), step + 1.0), torch.tensor([step % 4, 0])
            errors.append(worst(on_cpu(x, at), run(x.to("npu"), at.to("npu"))))
    return {
        "errors": errors,
        "state": worst(on_cpu.total, on_npu.total),
        "captures": sim.calls().captures,
    }


def capture(sim: npusim.Simulator) -> Result:
    """Graphs captured by hand and by npugraph_ex."""
    import torch

    sim.install_kernels()
    x = torch.ones(4, device="npu")
    counter = torch.zeros(1, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.no_grad(), torch.npu.graph(graph):
        y = torch.relu(x * 2 - 3) + x
        counter.add_(1)
    captured_only = counter.cpu().tolist()
    x.fill_(5)
    graph.replay()
    graph.replay()
    result: Result = {
        "after_capture": captured_only,
        "after_replays": counter.cpu().tolist(),
        "replayed": y.cpu().tolist(),
    }
    recorded = len(sim.install_kernels()._recorded)
    graph.reset()
    result["forgotten"] = len(sim.install_kernels()._recorded) < recorded

    def item_inside() -> None:
        broken = torch.npu.NPUGraph()
        with torch.npu.graph(broken):
            (x + 1).sum().item()

    result["item"] = error_of(item_inside)
    module = mlp().to("npu")
    cpu_module = mlp()
    run = compiled("npugraph_ex", module)
    sim.reset_calls()
    errors, captures = [], []
    with torch.no_grad():
        for rows in (2, 2, 3, 3, 2):
            batch = torch.randn(rows, 8)
            errors.append(worst(cpu_module(batch), run(batch.to("npu"))))
            captures.append(sim.calls().captures)
    result.update(errors=errors, captures=captures, executes=sim.calls().executes)
    torch._dynamo.reset()
    sim.reset_calls()
    forced = compiled("npugraph_ex", module, force_eager=True)
    with torch.no_grad():
        batch = torch.randn(2, 8)
        result["forced_error"] = worst(cpu_module(batch), forced(batch.to("npu")))
    result["forced"] = [sim.calls().captures, sim.calls().executes]
    result["state"] = state(sim, "npugraph_ex")
    return result


def max_autotune(sim: npusim.Simulator) -> Result:
    """Lowering, GE and the C++ executor, with and without frozen parameters."""
    import torch

    sim.install_kernels()
    engine = sim.install_ge()
    result: Result = {}
    ids, batch = torch.randint(0, 64, (1, 6)), torch.randn(2, 8)
    cases = [("mlp", mlp, batch, False), ("mlp", mlp, batch, True), ("llama", llama, ids, False)]
    for name, made, inputs, frozen in cases:
        torch._dynamo.reset()
        sim.reset_calls()
        on_cpu, on_npu = made(), made().to("npu")
        run = compiled("max-autotune", on_npu, frozen_parameter=frozen)
        with torch.no_grad():
            errors = [worst(logits(on_cpu(inputs)), logits(run(inputs.to("npu")))) for _ in "abc"]
        calls, graph = sim.calls(), sim.graphs()[-1]
        result[f"{name} frozen={frozen}"] = {
            "errors": errors,
            "compiles": calls.compiles,
            "runs": calls.graph_runs,
            "ops": graph.ops,
            "options": graph.options,
        }
    result["callbacks"] = engine.callbacks
    result["state"] = state(sim, "max-autotune")
    return result


def faults(sim: npusim.Simulator) -> Result:
    """A misbehaving device; the errors as a user's code sees them, in a process that goes on."""
    import torch

    sim.install_kernels()
    sim.install_ge()

    def graph(mode: str, module: Any) -> None:
        torch._dynamo.reset()
        with torch.no_grad():
            compiled(mode, module.to("npu"))(torch.randn(2, 8, device="npu"))

    def kernels() -> None:
        for _ in range(3):
            torch.ones(2, device="npu").add_(1)

    def replay_beyond_the_table() -> None:
        table, index = torch.randn(3, 2).to("npu"), torch.tensor([0, 1]).to("npu")
        captured = torch.npu.NPUGraph()
        with torch.no_grad(), torch.npu.graph(captured):
            torch.nn.functional.embedding(index, table)
        index.fill_(7)
        captured.replay()

    class Unknown(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.npu.npu_mish(x)

    ge, aclgraph = "max-autotune", "npugraph_ex"
    result = {
        "reject": error_of(lambda: graph(ge, torch.nn.Softmax(-1))),
        "no reference": error_of(lambda: graph(ge, Unknown())),
        "in a replay": error_of(replay_beyond_the_table),
    }
    cases: list[tuple[str, Callable[[], object]]] = [
        ("ge-compile", lambda: graph(ge, mlp())),
        ("ge-run", lambda: graph(ge, mlp())),
        ("capture@2", lambda: graph(aclgraph, mlp())),
        ("streams", lambda: graph(aclgraph, mlp())),
        ("oom", lambda: torch.ones(1 << 23, device="npu")),
        ("kernel@2", kernels),
        ("device-lost@2", kernels),
    ]
    for name, call in cases:
        sim.reset_calls()
        sim.add_fault(npusim.parse_fault(name))
        result[name] = error_of(call)
        sim.clear_faults()
        result[f"after {name}"] = error_of(torch.npu.synchronize)
    return result


def hang(sim: npusim.Simulator, ready: str) -> Result:
    """A device that never finishes a replay."""
    import torch

    sim.install_kernels()
    run = compiled("npugraph_ex", mlp().to("npu"))
    with torch.no_grad():
        run(torch.randn(2, 8, device="npu"))
        Path(ready).touch()
        torch.npu.synchronize()
    return {}


def main() -> None:
    """Run one probe."""
    name, out, text = sys.argv[1:]
    options = json.loads(text)
    arguments = options.pop("arguments", {})
    options["faults"] = [npusim.parse_fault(fault) for fault in options.get("faults", ())]
    config = msgspec.convert(options, npusim.SimConfig)
    sim = npusim.activate(config)
    result = globals()[name](sim, **arguments)
    Path(out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
