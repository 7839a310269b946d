"""Cases to objects: modes, and models with what feeds them.

Only a worker loads models. Torch is imported inside the functions that need it, because the
parent asks this module for modes.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from benchbench.errors import LoadError, did_you_mean
from benchbench.inputs import as_inputs, can_vary, input_maker, tensor_map
from benchbench.models import Inputs, Workload
from benchbench.modes import Mode
from benchbench.records import Case, Target
from benchbench.sources import source_hashes, where_raised
from benchbench.targets import DEFAULT_ATTRIBUTE, FORMS, import_plugin, resolve

if TYPE_CHECKING:
    import torch

__all__ = [
    "build_golden",
    "build_mode",
    "build_workload",
    "import_plugin",
    "resolve",
    "source_hashes",
    "where_raised",
]


def build_mode(target: Target) -> Mode:
    """Return the mode that a target names, made with the target's options. Torch-free."""
    made = _callable(target.path)
    _check_options(made, target.options, target.path, standard=())
    mode: Mode = made(**target.options)
    return mode


def build_workload(case: Case, *, device: torch.device, dtype: torch.dtype) -> Workload:
    """Build the model of a case: seeds all random generators, then calls the case's builder.

    The builder gets those of ``device``, ``dtype``, ``batch_size``, ``seq_len``, ``workload``,
    ``seed`` and its options that its signature accepts. What it returns is a :class:`Workload`,
    or ``(module, inputs)`` with inputs that are a tensor, a tuple or list of arguments, a
    dictionary of keyword arguments, :class:`Inputs`, or a function of a seed that gives one of
    these. Whether the module is in training mode is left as the builder made it.
    """
    from benchbench.correctness.recorder import seed_everything

    path = case.model_target.path
    builder = _callable(path)
    offered = {
        "device": device,
        "dtype": dtype,
        "batch_size": case.batch_size,
        "seq_len": case.seq_len,
        "workload": case.workload,
        "seed": case.seed,
    }
    accepted = _accepted(builder)
    _check_options(builder, case.model_target.options, path, standard=offered)
    _check_ignored(case, accepted, path)
    arguments = {
        name: value
        for name, value in offered.items()
        if accepted is None or (name in accepted and _is_given(builder, name, value))
    }
    seed_everything(case.seed)
    made = builder(**{**arguments, **case.model_target.options})
    if isinstance(made, Workload):
        _check_module(made.module, path)
        _check_place(made.module, device, dtype, path)
        return made
    module, inputs = _pair(made, path)
    # A builder that takes the dtype may have reasons for parts that differ from it.
    convert_to = None if "dtype" in _parameters(builder) else dtype
    _move(module, device, convert_to)
    _check_place(module, device, dtype, path)
    takes_batch = accepted is None or "batch_size" in accepted
    return Workload(
        module=module,
        make_inputs=input_maker(inputs, case.seed, device, convert_to, path),
        items=case.batch_size if takes_batch else 1,
        item="samples" if takes_batch else "calls",
        notes=tuple(_pair_notes(module, inputs)),
    )


def build_golden(case: Case, *, device: torch.device, dtype: torch.dtype) -> Workload:
    """Build the case's model once more and widen weights, state and inputs to float64.

    Building with ``dtype=float64`` would draw other random weights; the widened copy has exactly
    the values of the model that it is the reference for.
    """
    import torch

    built = build_workload(case, device=device, dtype=dtype)
    _convert(built.module, torch.float64)

    def make_inputs(seed: int) -> Inputs:
        made = built.make_inputs(seed)
        widen = tensor_map(lambda t: t.to(torch.float64) if t.is_floating_point() else t)
        return Inputs(tuple(map(widen, made.args)), {k: widen(v) for k, v in made.kwargs.items()})

    return dataclasses.replace(built, make_inputs=make_inputs)


def _callable(path: str) -> Callable[..., Any]:
    found = resolve(path)
    if callable(found):
        return found
    what = "a module" if isinstance(found, ModuleType) else f"of type {type(found).__name__}"
    step = f"\n  next: {path}.build" if callable(getattr(found, DEFAULT_ATTRIBUTE, None)) else ""
    raise LoadError(f"'{path}' is {what}, not something to call\n  accepted: {FORMS}{step}")


def _parameters(builder: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(builder).parameters
    except (TypeError, ValueError):  # some extension types have no signature: offer everything
        any_name = inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)
        return {"options": any_name}


def _accepted(builder: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters that can be given by name; ``None`` when every name can."""
    parameters = _parameters(builder).values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {parameter.name: parameter for parameter in parameters if parameter.kind in named}


def _check_options(
    builder: Callable[..., Any],
    options: Mapping[str, Any],
    path: str,
    *,
    standard: Iterable[str],
) -> None:
    """Raise when an option has no parameter, or a parameter without default has no value."""
    accepted = _accepted(builder)
    own = sorted(set(accepted or ()) - set(standard))
    for name in options:
        if accepted is not None and name not in accepted:
            raise LoadError(
                f"'{path}' takes no option '{name}'{did_you_mean(name, own)}\n"
                f"  it takes: {', '.join(own) if own else '(none)'}"
            )
    for parameter in _parameters(builder).values():
        is_single = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        needed = is_single and parameter.default is parameter.empty
        if needed and (
            parameter.kind is parameter.POSITIONAL_ONLY
            or parameter.name not in {*standard, *options}
        ):
            raise LoadError(
                f"'{path}' needs a value for '{parameter.name}'\n"
                f"  given by name: {', '.join([*standard, *options])}\n"
                f"  next: give it a default, or an option {parameter.name}=VALUE"
            )


def _is_given(builder: Callable[..., Any], name: str, value: object) -> bool:
    """Leave the builder's own default where the case has no value."""
    return value is not None or _parameters(builder)[name].default is inspect.Parameter.empty


def _check_ignored(case: Case, accepted: Mapping[str, inspect.Parameter] | None, path: str) -> None:
    """Raise when the case asks for something that its builder would not hear of.

    The row would carry the label of a shape or workload that did not run.
    """
    asked = {
        "batch_size": case.batch_size if case.batch_size != 1 else None,
        "seq_len": case.seq_len,
        "workload": case.workload if case.workload != "forward" else None,
    }
    for name, value in asked.items():
        if value is not None and accepted is not None and name not in accepted:
            raise LoadError(
                f"{name}={value} is asked for, but '{path}' takes no {name}\n"
                f"  next: add the parameter {name}, or leave {name} out"
            )


def _pair(made: object, path: str) -> tuple[torch.nn.Module, object]:
    import torch

    if isinstance(made, torch.nn.Module):
        raise LoadError(
            f"'{path}' returned a module without inputs\n  next: return (module, inputs)"
        )
    if not isinstance(made, tuple | list) or len(made) != 2:
        size = f" of {len(made)}" if isinstance(made, tuple | list) else ""
        raise LoadError(
            f"'{path}' returned {_a_type(made)}{size}\n"
            "  accepted: (module, inputs), or a benchbench.models.Workload"
        )
    module, inputs = made
    _check_module(module, path)
    return module, inputs


def _a_type(value: object) -> str:
    """Return what a value is, with its article."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _check_module(module: object, path: str) -> None:
    import torch

    if not isinstance(module, torch.nn.Module):
        raise LoadError(
            f"'{path}' gave {_a_type(module)} where a torch.nn.Module is needed\n"
            "  next: put it in the forward of a module"
        )
    if type(module).__name__ == "OptimizedModule":
        raise LoadError(
            f"'{path}' gave a module that torch.compile has wrapped already\n"
            "  next: return the plain module; the mode compiles it"
        )


def _check_place(
    module: torch.nn.Module, device: torch.device, dtype: torch.dtype, path: str
) -> None:
    """Raise when the weights are not where, or not of the type that, the row will say."""
    tensors = [*module.parameters(), *module.buffers()]
    elsewhere = sorted({str(t.device) for t in tensors if t.device.type != device.type})
    if elsewhere:
        raise LoadError(
            f"'{path}' built on {', '.join(elsewhere)}, but device={device} is asked for\n"
            "  next: take the parameter device and build there"
        )
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if dtypes and dtype not in dtypes:
        has = ", ".join(sorted(_dtype_name(found) for found in dtypes))
        raise LoadError(
            f"'{path}' built weights of {has}, but dtype={_dtype_name(dtype)} is asked for\n"
            f"  next: take the parameter dtype and build with it, or dtype={has}"
        )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _move(module: torch.nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
    module.to(device)
    if dtype is not None:
        _convert(module, dtype)


def _convert(module: torch.nn.Module, dtype: torch.dtype) -> None:
    # Not module.to(dtype): it would drop the imaginary part of complex buffers.
    module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)  # type: ignore[no-untyped-call]


def _pair_notes(module: torch.nn.Module, inputs: object) -> Iterator[str]:
    if module.training:
        yield "the module is in training mode, as its builder left it"
    if not callable(inputs) and not can_vary(as_inputs(inputs, "")):
        yield "every call gets the same input values: give a function of a seed to vary them"
