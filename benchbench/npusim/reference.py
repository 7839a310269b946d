"""CPU references for ops of torch_npu that have no counterpart in aten.

torch_npu dispatches some aten ops to these (scaled_dot_product_attention on a 910B becomes
``npu_fusion_attention_v3``), and models call them directly. Each reference is made of the CPU's
own kernels, so that a model computes the same here as on the CPU; it is not CANN's rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def _heads_first(tensor: Tensor, layout: str, heads: int) -> Tensor:
    """Return the tensor as batch, heads, sequence, head size."""
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    if layout == "SBH":
        tensor = tensor.transpose(0, 1)
    elif layout != "BSH":
        raise NotImplementedError(f"[npusim] no reference for the attention layout {layout}")
    batch, length, width = tensor.shape
    return tensor.reshape(batch, length, heads, width // heads).transpose(1, 2)


def _from_heads_first(tensor: Tensor, layout: str) -> Tensor:
    if layout == "BNSD":
        return tensor
    rows = tensor.transpose(1, 2)
    if layout == "BSND":
        return rows.contiguous()
    rows = rows.flatten(2)
    return rows.transpose(0, 1).contiguous() if layout == "SBH" else rows


def _key_heads(query: Tensor, key: Tensor, layout: str, head_num: int) -> int:
    if layout in ("BNSD", "BSND"):
        return key.shape[1 if layout == "BNSD" else 2]
    return key.shape[-1] * head_num // query.shape[-1]


def fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return attention, then what only a backward pass needs.

    ``atten_mask`` is true where a key is hidden. ``sparse_mode`` 2 and 3 are causal from the upper
    left and the lower right corner; their mask is a template of fixed size. Dropout and the
    band-shaped modes have no reference.
    """
    if sparse_mode not in (0, 1, 2, 3):
        raise NotImplementedError(f"[npusim] no reference for sparse_mode={sparse_mode}")
    if keep_prob != 1.0 or padding_mask is not None:
        raise NotImplementedError("[npusim] no reference for dropout and padding_mask")
    kv_heads = _key_heads(query, key, input_layout, head_num)
    q = _heads_first(query, input_layout, head_num)
    k = _heads_first(key, input_layout, kv_heads)
    v = _heads_first(value, input_layout, kv_heads)
    out = scaled_dot_product_attention(
        *(q, k, v),
        attn_mask=_visible(q, k, pse, atten_mask, sparse_mode),
        is_causal=_is_plain_causal(q, k, sparse_mode) and pse is None,
        scale=scale,
        enable_gqa=kv_heads != head_num,
    )
    # The device hands out the softmax's maximum and sum, eight times over, for its backward
    # kernel. There is no such kernel here, so nobody may take these for numbers.
    shape = (*q.shape[:-1], 8)
    peak, total = (torch.full(shape, math.nan, device=query.device) for _ in range(2))
    return _from_heads_first(out, input_layout), peak, total, query.new_empty(0)


def _is_plain_causal(query: Tensor, key: Tensor, sparse_mode: int) -> bool:
    return sparse_mode == 2 or (sparse_mode == 3 and query.shape[-2] == key.shape[-2])


def _visible(
    query: Tensor, key: Tensor, pse: Tensor | None, atten_mask: Tensor | None, sparse_mode: int
) -> Tensor | None:
    """Return the mask as aten wants it: true where a key is seen, or what is added to scores."""
    hidden = None if atten_mask is None else atten_mask.bool()
    if sparse_mode in (2, 3):
        if pse is None and _is_plain_causal(query, key, sparse_mode):
            return None
        rows, columns = query.shape[-2], key.shape[-2]
        everything = torch.ones(rows, columns, dtype=torch.bool, device=query.device)
        hidden = everything.triu(1 if sparse_mode == 2 else columns - rows + 1)
    if pse is None:
        return None if hidden is None else ~hidden
    return pse if hidden is None else pse.masked_fill(hidden, -math.inf)


def _fusion_attention_v1(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return (*fusion_attention(*args, **kwargs), 0, 0, 0)


def _fusion_attention_v3(query: Tensor, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    seed = torch.zeros(1, dtype=torch.int64, device=query.device)
    return (*fusion_attention(query, *args, **kwargs), seed, seed.clone())


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return the normalised input times ``gamma``, and the reciprocal root mean square."""
    wide = x.float()
    dims = list(range(-gamma.dim(), 0))
    reciprocal = torch.rsqrt(wide.pow(2).mean(dim=dims, keepdim=True) + epsilon)
    return (wide * reciprocal * gamma.float()).to(x.dtype), reciprocal


def add_rms_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Return :func:`rms_norm` of the sum, its statistic, and the sum."""
    total = x1 + x2
    normalised, reciprocal = rms_norm(total, gamma, epsilon)
    return normalised, reciprocal, total


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """Return silu of the first half times the second half."""
    first, second = x.chunk(2, dim=dim)
    return torch.nn.functional.silu(first) * second


def rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", *args: Any) -> Tensor:
    """Return ``x * r1 + rotated(x) * r2``."""
    if rotary_mode == "half":
        first, second = x.chunk(2, dim=-1)
        rotated = torch.cat((-second, first), dim=-1)
    elif rotary_mode == "interleave":
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        rotated = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    else:
        raise NotImplementedError(f"[npusim] no reference for the rotary mode {rotary_mode}")
    return x * r1 + rotated * r2


REFERENCES: dict[str, Callable[..., Any]] = {
    "npu_fusion_attention": _fusion_attention_v1,
    "npu_fusion_attention_v3": _fusion_attention_v3,
    "npu_rms_norm": rms_norm,
    "npu_add_rms_norm": add_rms_norm,
    "npu_swiglu": swiglu,
    "npu_rotary_mul": rotary_mul,
}
"""Name of the op in the ``npu`` namespace -> reference."""
