"""Ops for which torch has a decomposition into ops that lower.

torchair uses none of torch's tables by itself; this takes single rows of
``torch._decomp.decomposition_table`` for ops that would be a gap otherwise.
"""

from benchbench.converter_kit import Decompositions

OPS = (
    "aten._chunk_cat.default",
    "aten._unsafe_masked_index.default",
    "aten.addmv.default",
    "aten.addr.default",
    "aten.addcdiv.default",
    "aten.alias_copy.default",
    "aten.binary_cross_entropy.default",
    "aten.binary_cross_entropy_with_logits.default",
    "aten.block_diag.default",
    "aten.celu.default",
    "aten.channel_shuffle.default",
    "aten.clamp_max.default",
    "aten.clamp_min.default",
    "aten.col2im.default",
    "aten.count_nonzero.default",
    "aten.count_nonzero.dim_IntList",
    "aten.deg2rad.default",
    "aten.diag_embed.default",
    "aten.dot.default",
    "aten.expand_copy.default",
    "aten.eye.default",
    "aten.eye.m",
    "aten.frexp.Tensor",
    "aten.hardshrink.default",
    "aten.huber_loss.default",
    "aten.im2col.default",
    "aten.isin.Tensor_Tensor",
    "aten.isin.Tensor_Scalar",
    "aten.isin.Scalar_Tensor",
    "aten.isneginf.default",
    "aten.isposinf.default",
    "aten.linalg_cross.default",
    "aten.logaddexp.default",
    "aten.logit.default",
    "aten.mv.default",
    "aten.mvlgamma.default",
    "aten.nansum.default",
    "aten.native_dropout_backward.default",
    "aten.nll_loss2d_forward.default",
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.rad2deg.default",
    "aten.reflection_pad1d.default",
    "aten.reflection_pad2d.default",
    "aten.reflection_pad3d.default",
    "aten.renorm.default",
    "aten.replication_pad1d.default",
    "aten.replication_pad2d.default",
    "aten.replication_pad3d.default",
    "aten.rot90.default",
    "aten.rrelu_with_noise_backward.default",
    "aten.sinc.default",
    "aten.smooth_l1_loss.default",
    "aten.soft_margin_loss.default",
    "aten.softplus.default",
    "aten.softplus_backward.default",
    "aten.softshrink.default",
    "aten.split_with_sizes_copy.default",
    "aten.t_copy.default",
    "aten.take.default",
    "aten.transpose_copy.int",
    "aten.unsafe_chunk.default",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
    "aten.unsqueeze_copy.default",
    "aten.vdot.default",
    "aten._softmax_backward_data.default",
    "aten._trilinear.default",
    "aten.special_log_ndtr.default",
    "aten._batch_norm_with_update_functional.default",
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten.linalg_vector_norm.default",
    "aten._weight_norm_interface.default",
    "aten.upsample_bicubic2d.default",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_linear1d.default",
    "aten.upsample_trilinear3d.default",
    "aten.upsample_nearest1d.default",
    "aten.upsample_nearest3d.default",
    "aten._upsample_nearest_exact1d.default",
    "aten._upsample_nearest_exact2d.default",
    "aten._upsample_nearest_exact3d.default",
    "aten.norm.Scalar",
    "aten.norm.ScalarOpt_dim",
    "aten.rand_like.default",
    "aten.masked_scatter_backward.default",
    "aten.glu_backward.default",
)
KIND = "decomposition"


class _FromTorch(Decompositions):
    def table(self):
        from torch._decomp import core_aten_decompositions, decomposition_table

        from benchbench.converters import overload

        core = core_aten_decompositions()
        found = {}
        for op in OPS:
            target = overload(op)
            function = core.get(target) or decomposition_table.get(target)
            if function is not None:
                found[op] = function
        return found


decompositions = _FromTorch().table
