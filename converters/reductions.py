"""Reductions that torchair only names: extrema, products, any and all over several dimensions.

====================================================  ============================
aten::amax(Tensor self, int[1] dim=[], bool keepdim)  ReduceMax(x, axes; keep_dims)
aten::amin, aten::min                                 ReduceMin(x, axes; keep_dims)
aten::min.dim(Tensor self, int dim, bool keepdim)     ArgMinWithValue(x; dimension)
aten::prod, aten::prod.dim_int                        ReduceProd(x, axes; keep_dims)
aten::any.dims, aten::all.dims                        ReduceAny, ReduceAll
aten::aminmax(Tensor self, *, int? dim, bool keepdim) ReduceMin and ReduceMax
====================================================  ============================
"""

from benchbench.converter_kit import DT, Converters, axes, ge, ints, promote

OPS = (
    "aten.amax.default",
    "aten.amin.default",
    "aten.min.default",
    "aten.min.dim",
    "aten.prod.default",
    "aten.prod.dim_int",
    "aten.any.dims",
    "aten.all.dims",
    "aten.all.dim",
    "aten.aminmax.default",
    "aten._aminmax.default",
    "aten._aminmax.dim",
)
KIND = "converter"

converter = Converters()
register = converter.register


def _reduced(reduce, self, dims, keepdim):
    """Return the reduction; of a bool through int32, which the IR operators take."""
    if self.rank == 0:
        return ge.Identity(self)
    kept = self.dtype
    wide = promote(self, to=DT.DT_INT32) if kept == DT.DT_BOOL else self
    result = reduce(wide, ints(axes(dims, self.rank)), keep_dims=keepdim)
    return promote(result, to=DT.DT_BOOL) if kept == DT.DT_BOOL else result


@converter("aten.amax.default")
def amax(self, dim=(), keepdim=False, meta_outputs=None):
    return _reduced(ge.ReduceMax, self, dim, keepdim)


@converter("aten.amin.default")
def amin(self, dim=(), keepdim=False, meta_outputs=None):
    return _reduced(ge.ReduceMin, self, dim, keepdim)


@converter("aten.min.default")
def min_all(self, meta_outputs=None):
    return _reduced(ge.ReduceMin, self, (), False)


@converter("aten.aminmax.default")
def aminmax(self, *, dim=None, keepdim=False, meta_outputs=None):
    dims = () if dim is None else [dim]
    return (
        _reduced(ge.ReduceMin, self, dims, keepdim),
        _reduced(ge.ReduceMax, self, dims, keepdim),
    )


@converter("aten._aminmax.default")
def aminmax_all(self, meta_outputs=None):
    return aminmax(self)


@converter("aten._aminmax.dim")
def aminmax_dim(self, dim, keepdim=False, meta_outputs=None):
    return aminmax(self, dim=dim, keepdim=keepdim)


@converter("aten.min.dim")
def min_dim(self, dim, keepdim=False, meta_outputs=None):
    if self.rank == 0:
        return ge.Identity(self), ge.Const(0, dtype=meta_outputs[1].dtype)
    kept = self.dtype
    wide = promote(self, to=DT.DT_INT32) if kept == DT.DT_BOOL else self
    index, value = ge.ArgMinWithValue(wide, dimension=axes(dim, self.rank)[0], keep_dims=keepdim)
    value = promote(value, to=DT.DT_BOOL) if kept == DT.DT_BOOL else value
    return value, promote(index, to=meta_outputs[1].dtype)


@converter("aten.prod.default")
def prod(self, *, dtype=None, meta_outputs=None):
    wide = promote(self, to=meta_outputs.dtype)
    return ge.Identity(wide) if self.rank == 0 else ge.ReduceProd(wide, ints(axes((), self.rank)))


@converter("aten.prod.dim_int")
def prod_dim(self, dim, keepdim=False, *, dtype=None, meta_outputs=None):
    rank = self.rank
    wide = promote(self, to=meta_outputs.dtype)
    if rank == 0:
        return ge.Identity(wide)
    return ge.ReduceProd(wide, ints(axes(dim, rank)), keep_dims=keepdim)


def _logical(reduce, self, dims, keepdim, meta):
    rank = self.rank
    truth = promote(self, to=DT.DT_BOOL)
    result = truth if rank == 0 else reduce(truth, ints(axes(dims, rank)), keep_dims=keepdim)
    return promote(ge.Identity(result), to=meta.dtype)


@converter("aten.any.dims")
def any_dims(self, dim=None, keepdim=False, meta_outputs=None):
    return _logical(ge.ReduceAny, self, dim, keepdim, meta_outputs)


@converter("aten.all.dims")
def all_dims(self, dim=None, keepdim=False, meta_outputs=None):
    return _logical(ge.ReduceAll, self, dim, keepdim, meta_outputs)


@converter("aten.all.dim")
def all_dim(self, dim, keepdim=False, meta_outputs=None):
    return _logical(ge.ReduceAll, self, [dim], keepdim, meta_outputs)
