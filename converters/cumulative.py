"""Cumulative ops and roll.

aten::cumprod(Tensor self, int dim, *, ScalarType? dtype): Cumprod(x, axis); aten::cummax:
Cummax(x; dim); aten::cummin: Cummin(x; axis); aten::logcumsumexp: CumulativeLogsumexp(x, axis);
aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]): Roll(x; shifts, dims), of the flattened
tensor where no dims are given.
"""

from benchbench.converter_kit import Converters, ge, ints, positive, promote, sizes

OPS = (
    "aten.cumprod.default",
    "aten.cummax.default",
    "aten.cummin.default",
    "aten.logcumsumexp.default",
    "aten.roll.default",
)
KIND = "converter"

converter = Converters()
register = converter.register


@converter("aten.cumprod.default")
def cumprod(self, dim, *, dtype=None, meta_outputs=None):
    rank = self.rank
    wide = promote(self, to=meta_outputs.dtype)
    return ge.Identity(wide) if rank == 0 else ge.Cumprod(wide, ints(positive(dim, rank)))


@converter("aten.cummax.default")
def cummax(self, dim, meta_outputs=None):
    if self.rank == 0:
        return ge.Identity(self), ge.Const(0, dtype=meta_outputs[1].dtype)
    value, index = ge.Cummax(self, dim=positive(dim, self.rank))
    return value, promote(index, to=meta_outputs[1].dtype)


@converter("aten.cummin.default")
def cummin(self, dim, meta_outputs=None):
    if self.rank == 0:
        return ge.Identity(self), ge.Const(0, dtype=meta_outputs[1].dtype)
    value, index = ge.Cummin(self, axis=positive(dim, self.rank))
    return value, promote(index, to=meta_outputs[1].dtype)


@converter("aten.logcumsumexp.default")
def logcumsumexp(self, dim, meta_outputs=None):
    if self.rank == 0:
        return ge.Identity(self)
    return ge.CumulativeLogsumexp(self, ints(positive(dim, self.rank)))


@converter("aten.roll.default")
def roll(self, shifts, dims=(), meta_outputs=None):
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else [positive(dim, self.rank) for dim in dims]
    if dims:
        return ge.Roll(self, shifts=shifts, dims=dims)
    shape = sizes(self)
    flat = ge.Roll(ge.Reshape(self, ints([-1])), shifts=shifts, dims=[0])
    return ge.Reshape(flat, ints(shape))
