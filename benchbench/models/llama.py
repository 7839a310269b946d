"""Llama: a causal decoder with rotary positions and grouped key/value heads.

Two workloads. ``prefill`` reads a whole prompt and gives the logits of its last token. ``decode``
reads one token after a prompt that was read while building; keys and values live in a cache of
fixed length and the position is a tensor on the device, so that one graph serves all positions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchbench.errors import LoadError
from benchbench.models import Workload
from benchbench.models.common import (
    Pick,
    build_transformers,
    building_on,
    check_workload,
    choose_source,
    fill_weights,
    random_tokens,
    token_inputs,
)

WORKLOADS = ("prefill", "decode")
DEFAULT_NEW_TOKENS = 128  # room behind the prompt when no max_cache_len is given


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Hyper-parameters under the names that public checkpoints use."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rms_norm_eps: float

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class RMSNorm(nn.Module):
    """Root mean square normalisation, in float32 at least."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Not plain .float(): a float64 reference copy of the model must stay float64.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Rotary(nn.Module):
    """Cosine and sine of the rotary angles; frequencies are float32 in every dtype."""

    def __init__(self, head_dim: int, theta: float) -> None:
        super().__init__()
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.register_buffer("inv_freq", 1.0 / theta**exponent, persistent=False)
        self.inv_freq: torch.Tensor

    def forward(
        self, positions: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        half = positions[:, None].to(self.inv_freq.dtype) * self.inv_freq
        angles = torch.cat([half, half], dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turn each pair (i, i + half) of the last dimension by its angle."""
    cos, sin = angles
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class KeyValueCache(nn.Module):
    """Keys and values of one layer in buffers that never move or grow."""

    def __init__(self, sizes: Sizes, batch_size: int, length: int) -> None:
        super().__init__()
        shape = (batch_size, sizes.num_key_value_heads, length, sizes.head_dim)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)
        self.keys: torch.Tensor
        self.values: torch.Tensor

    def forward(
        self, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.index_copy_(2, positions, keys)
        self.values.index_copy_(2, positions, values)
        return self.keys, self.values


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        self.queries_per_key = sizes.num_attention_heads // sizes.num_key_value_heads
        narrow = sizes.num_key_value_heads * sizes.head_dim
        self.q_proj = nn.Linear(sizes.hidden_size, sizes.hidden_size, bias=False)
        self.k_proj = nn.Linear(sizes.hidden_size, narrow, bias=False)
        self.v_proj = nn.Linear(sizes.hidden_size, narrow, bias=False)
        self.o_proj = nn.Linear(sizes.hidden_size, sizes.hidden_size, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        cache: KeyValueCache | None,
    ) -> torch.Tensor:
        queries = rotate(self._split(self.q_proj(x)), angles)
        keys = rotate(self._split(self.k_proj(x)), angles)
        values = self._split(self.v_proj(x))
        if cache is not None:
            keys, values = cache(positions, keys, values)
        # Repeated by hand: not every device's attention knows grouped heads.
        attended = F.scaled_dot_product_attention(
            queries,
            self._repeat(keys),
            self._repeat(values),
            attn_mask=mask,
            is_causal=mask is None,
        )
        return self.o_proj(attended.transpose(1, 2).flatten(-2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _repeat(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, None].expand(-1, -1, self.queries_per_key, -1, -1).flatten(1, 2)


class FeedForward(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden_size, sizes.intermediate_size, bias=False)
        self.up_proj = nn.Linear(sizes.hidden_size, sizes.intermediate_size, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate_size, sizes.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.self_attn = Attention(sizes)
        self.mlp = FeedForward(sizes)
        self.input_layernorm = RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)

    def forward(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        cache: KeyValueCache | None,
    ) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, positions, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Token ids and positions in, logits of the last token out (``[batch, 1, vocab]``)."""

    def __init__(self, sizes: Sizes, rope_theta: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.rotary = Rotary(sizes.head_dim, rope_theta)
        self.lm_head = nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        caches: Sequence[KeyValueCache] | nn.ModuleList | None = None,
    ) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        angles = self.rotary(positions, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, angles, positions, mask, None if caches is None else caches[index])
        # Only the last position: over a whole prompt a large vocabulary would outweigh the model.
        return self.lm_head(self.norm(x[:, -1:]))


class Prefill(nn.Module):
    """A prompt ``[batch, seq_len]`` in, logits of its last token out."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.model(tokens, positions)


class DecodeStep(nn.Module):
    """One token ``[batch, 1]`` in, its logits out; the position advances by one."""

    def __init__(self, model: Llama, sizes: Sizes, batch_size: int, max_cache_len: int) -> None:
        super().__init__()
        self.model = model
        self.caches = nn.ModuleList(
            KeyValueCache(sizes, batch_size, max_cache_len) for _ in model.layers
        )
        self.register_buffer("slots", torch.arange(max_cache_len), persistent=False)
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64), persistent=False)
        self.slots: torch.Tensor
        self.position: torch.Tensor

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        logits = self._step(token, self.position)
        self.position.add_(1)
        return logits

    def read_prompt(self, prompt: torch.Tensor) -> None:
        """Fill the cache with a prompt of ``[batch, length]``, eagerly."""
        self._step(prompt, self.slots[: prompt.shape[1]])
        self.position.fill_(prompt.shape[1])

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, in place: nothing recompiles."""
        for cache in self.caches:
            assert isinstance(cache, KeyValueCache)
            cache.keys[:, :, length:].zero_()
            cache.values[:, :, length:].zero_()
        self.position.fill_(length)

    def _step(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        mask = self.slots[None, :] <= positions[:, None]
        return self.model(tokens, positions, mask, self.caches)


class TransformersDecodeStep(nn.Module):
    """The same step on a transformers model and its ``StaticCache``.

    The position is a tensor inside the cache. It needs the cache of transformers >= 5, which
    moves its own position; the argument's name differs between 5.x releases.
    """

    def __init__(self, model: nn.Module, cache: Any) -> None:
        super().__init__()
        self.model = model
        self.cache = cache
        accepted = inspect.signature(type(model).forward).parameters
        self.cache_name = "cache" if "cache" in accepted else "past_key_values"
        if not all(hasattr(layer, "cumulative_length") for layer in cache.layers):
            raise LoadError(
                "this transformers has a static cache without a position of its own\n"
                "  next: pip install -U transformers, or options.source=own"
            )

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        out = self.model(
            input_ids=token, use_cache=True, logits_to_keep=1, **{self.cache_name: self.cache}
        )
        return out.logits

    def read_prompt(self, prompt: torch.Tensor) -> None:
        """Fill the cache with a prompt, eagerly; this also gives it its fixed addresses."""
        self(prompt)

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, in place: nothing recompiles."""
        for layer in self.cache.layers:
            layer.keys[:, :, length:].zero_()
            layer.values[:, :, length:].zero_()
            layer.cumulative_length.fill_(length)

    def state(self) -> dict[str, torch.Tensor]:
        """Name the tensors that a call changes; they are not buffers of this module."""
        names = ("keys", "values", "cumulative_length")
        return {
            f"cache.{index}.{name}": getattr(layer, name)
            for index, layer in enumerate(self.cache.layers)
            for name in names
        }

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        # The cache is no module, so that .double() and .to() would leave it behind.
        for layer in self.cache.layers:
            for name in ("keys", "values", "cumulative_length"):
                if getattr(layer, name, None) is not None:
                    setattr(layer, name, fn(getattr(layer, name)))
        return super()._apply(fn, recurse)


def build(
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    seq_len: int,
    workload: str = "prefill",
    seed: int = 0,
    source: str = "own",
    vocab_size: int = 512,
    hidden_size: int = 64,
    intermediate_size: int = 128,
    num_hidden_layers: int = 2,
    num_attention_heads: int = 4,
    num_key_value_heads: int = 2,
    max_position_embeddings: int = 2048,
    rope_theta: float = 5e5,
    rms_norm_eps: float = 1e-5,
    max_cache_len: int | None = None,
) -> Workload:
    """Return a prefill over ``seq_len`` tokens, or a decode step behind a prompt of ``seq_len``.

    ``max_cache_len`` is the length of the decode cache in tokens, prompt included (default: the
    prompt and 128 more). A static step attends over all of it, so its latency depends on it.
    """
    check_workload(workload, WORKLOADS)
    sizes = Sizes(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        max_position_embeddings=max_position_embeddings,
        rms_norm_eps=rms_norm_eps,
    )
    chosen, note = choose_source(source)
    cache_len = _cache_length(workload, seq_len, max_cache_len, max_position_embeddings)
    _check_heads(sizes)
    make = _transformers if chosen == "transformers" else _own
    module = make(sizes, rope_theta, batch_size, cache_len, device, dtype)
    fill_weights(module)
    if isinstance(module, DecodeStep | TransformersDecodeStep):
        prompt = random_tokens((batch_size, seq_len), vocab_size, seed).to(device)
        return _decode(module, prompt, cache_len, vocab_size, note)
    return Workload(
        module=module,
        make_inputs=token_inputs((batch_size, seq_len), vocab_size, device),
        items=batch_size * seq_len,
        item="tokens",
        notes=(note,),
    )


def _decode(
    step: DecodeStep | TransformersDecodeStep,
    prompt: torch.Tensor,
    cache_len: int,
    vocab_size: int,
    note: str,
) -> Workload:
    batch_size, length = prompt.shape
    with torch.no_grad():
        step.read_prompt(prompt)
    return Workload(
        module=step,
        make_inputs=token_inputs((batch_size, 1), vocab_size, prompt.device),
        items=batch_size,
        item="tokens",
        reset=lambda: step.rewind(length),
        max_calls=cache_len - length,
        # The caches of our own step are buffers, which are compared anyway.
        state=step.state if isinstance(step, TransformersDecodeStep) else None,
        notes=(note, f"decode: prompt {length}, max_cache_len {cache_len}"),
    )


def _own(
    sizes: Sizes,
    rope_theta: float,
    batch_size: int,
    cache_len: int,
    device: torch.device,
    dtype: torch.dtype,
) -> nn.Module:
    with building_on(device, dtype):
        model = Llama(sizes, rope_theta)
        if cache_len:
            return DecodeStep(model, sizes, batch_size, cache_len).eval()
        return Prefill(model).eval()


def _transformers(
    sizes: Sizes,
    rope_theta: float,
    batch_size: int,
    cache_len: int,
    device: torch.device,
    dtype: torch.dtype,
) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    rope = {"rope_type": "default", "rope_theta": rope_theta}
    config = LlamaConfig(**asdict(sizes), rope_parameters=rope)
    model = build_transformers(LlamaForCausalLM, config, device, dtype, attn_implementation="sdpa")
    if cache_len:
        cache = StaticCache(config=config, max_cache_len=cache_len)
        return TransformersDecodeStep(model, cache).eval()
    return Pick(model, ("input_ids",), ("logits",), use_cache=False, logits_to_keep=1).eval()


def _cache_length(workload: str, seq_len: int, max_cache_len: int | None, limit: int) -> int:
    """Return the decode cache's length in tokens, 0 for a workload without one."""
    needed = seq_len
    length = 0
    if workload == "decode":
        length = seq_len + DEFAULT_NEW_TOKENS if max_cache_len is None else max_cache_len
        needed = length
        if length <= seq_len:
            raise LoadError(
                f"max_cache_len={length} has no room behind a prompt of seq_len={seq_len}\n"
                "  next: a larger options.max_cache_len"
            )
    if needed > limit:
        raise LoadError(
            f"{needed} tokens are more than max_position_embeddings={limit}\n"
            "  next: a shorter seq_len, or options.max_position_embeddings"
        )
    return length


def _check_heads(sizes: Sizes) -> None:
    if sizes.hidden_size % sizes.num_attention_heads:
        raise LoadError(
            f"hidden_size={sizes.hidden_size} is not a multiple of "
            f"num_attention_heads={sizes.num_attention_heads}"
        )
    if sizes.num_attention_heads % sizes.num_key_value_heads:
        raise LoadError(
            f"num_attention_heads={sizes.num_attention_heads} is not a multiple of "
            f"num_key_value_heads={sizes.num_key_value_heads}"
        )
