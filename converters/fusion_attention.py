"""Attention as torch_npu dispatches it on A2 and A3 chips (scaled_dot_product_attention).

npu::npu_fusion_attention_v3(Tensor query, Tensor key, Tensor value, int head_num, str input_layout,
Tensor? pse, Tensor? padding_mask, Tensor? atten_mask, float scale, float keep_prob, ...) ->
(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor): FlashAttentionScore(query, key, value, real_shift,
drop_mask, padding_mask, atten_mask, ...; scale_value, head_num, input_layout, sparse_mode). The
last two outputs are the seed and the offset of the dropout, which is not converted.

The wheel documents FlashAttentionScore for float16 and bfloat16.
"""

import math

from benchbench.converter_kit import DT, Converters, ge, ints

OPS = ("npu.npu_fusion_attention_v3.default",)
KIND = "converter"

converter = Converters()
register = converter.register


@converter("npu.npu_fusion_attention_v3.default")
def fusion_attention_v3(
    query,
    key,
    value,
    head_num,
    input_layout,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    scale=1.0,
    keep_prob=1.0,
    pre_tockens=2147483647,
    next_tockens=2147483647,
    inner_precise=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
    softmax_layout="",
    sink=None,
    meta_outputs=None,
):
    if not math.isclose(keep_prob, 1.0) or sink is not None or softmax_layout:
        raise NotImplementedError(
            "npu_fusion_attention_v3 with dropout, sink or softmax_layout has no converter"
        )
    peak, total, probabilities, out = ge.FlashAttentionScore(
        query,
        key,
        value,
        real_shift=pse,
        drop_mask=None,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        prefix=None if prefix is None else ints(list(prefix)),
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        q_start_idx=None,
        kv_start_idx=None,
        head_num=head_num,
        input_layout=input_layout,
        scale_value=scale,
        keep_prob=keep_prob,
        pre_tockens=pre_tockens,
        next_tockens=next_tockens,
        inner_precise=inner_precise,
        sparse_mode=sparse_mode,
    )
    seed = ge.Const([0], dtype=DT.DT_INT64)
    offset = ge.Const([0], dtype=DT.DT_INT64)
    return out, peak, total, probabilities, seed, offset
