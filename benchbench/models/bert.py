"""BERT: a bidirectional encoder with learned positions and normalisation after each residual."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional as F

from benchbench.errors import LoadError
from benchbench.models import Workload
from benchbench.models.common import (
    Pick,
    build_transformers,
    building_on,
    choose_source,
    fill_weights,
    token_inputs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Hyper-parameters under the names that public checkpoints use."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float


class Embeddings(nn.Module):
    """Sum of word, position and segment vectors, normalised."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.word = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.position = nn.Embedding(sizes.max_position_embeddings, sizes.hidden_size)
        self.token_type = nn.Embedding(sizes.type_vocab_size, sizes.hidden_size)
        self.norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        segments = torch.zeros_like(tokens)
        summed = self.word(tokens) + self.position(positions) + self.token_type(segments)
        return self.norm(summed)


class Layer(nn.Module):
    """Self-attention and feed-forward, each with a residual that is normalised afterwards."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.heads = sizes.num_attention_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)
        self.intermediate = nn.Linear(width, sizes.intermediate_size)
        self.output = nn.Linear(sizes.intermediate_size, width)
        self.output_norm = nn.LayerNorm(width, eps=sizes.layer_norm_eps)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = F.scaled_dot_product_attention(
            self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        )
        x = self.attention_norm(x + self.attention_output(attended.transpose(1, 2).flatten(-2)))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """Token ids in; the last hidden state and the pooled first token out.

    Both are returned because a compiler removes what no output needs: with the hidden state alone
    a graph mode would skip the pooler that eager computes.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embeddings = Embeddings(sizes)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.pooler = nn.Linear(sizes.hidden_size, sizes.hidden_size)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


def build(
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    seq_len: int,
    source: str = "own",
    vocab_size: int = 512,
    hidden_size: int = 64,
    intermediate_size: int = 128,
    num_hidden_layers: int = 2,
    num_attention_heads: int = 4,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 2,
    layer_norm_eps: float = 1e-12,
) -> Workload:
    """Return the encoder and token ids of ``[batch_size, seq_len]``."""
    if seq_len > max_position_embeddings:
        raise LoadError(
            f"seq_len={seq_len} is longer than max_position_embeddings={max_position_embeddings}\n"
            "  next: a shorter seq_len, or options.max_position_embeddings"
        )
    sizes = Sizes(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=num_attention_heads,
        max_position_embeddings=max_position_embeddings,
        type_vocab_size=type_vocab_size,
        layer_norm_eps=layer_norm_eps,
    )
    chosen, note = choose_source(source)
    make = _transformers if chosen == "transformers" else _own
    module = make(sizes, device, dtype)
    fill_weights(module)
    return Workload(
        module=module,
        make_inputs=token_inputs((batch_size, seq_len), vocab_size, device),
        items=batch_size,
        item="samples",
        notes=(note,),
    )


def _own(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> nn.Module:
    with building_on(device, dtype):
        return Bert(sizes).eval()


def _transformers(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(**asdict(sizes))
    model = build_transformers(BertModel, config, device, dtype, attn_implementation="sdpa")
    return Pick(model, ("input_ids",), ("last_hidden_state", "pooler_output")).eval()
