"""Variance, order statistics and histograms, by sort, mean and comparisons.

aten::var.correction, var_mean.correction, std_mean.correction; median, nanmedian, kthvalue, mode,
sort.stable; histc, searchsorted, bucketize; norm-like dist.
"""

import math

import torch

from benchbench.converter_kit import Decompositions

OPS = (
    "aten.var.correction",
    "aten.var_mean.correction",
    "aten.std_mean.correction",
    "aten.median.default",
    "aten.median.dim",
    "aten.nanmedian.default",
    "aten.nanmedian.dim",
    "aten.kthvalue.default",
    "aten.mode.default",
    "aten.sort.stable",
    "aten.histc.default",
    "aten.bucketize.Tensor",
    "aten.bucketize.Scalar",
    "aten.searchsorted.Scalar",
    "aten.dist.default",
)
KIND = "decomposition"

decomposition = Decompositions()
decompositions = decomposition.table


def _dims(dim, rank):
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    return [dim] if isinstance(dim, int) else list(dim)


@decomposition("aten.var_mean.correction")
def var_mean(self, dim=None, *, correction=None, keepdim=False):
    """aten::var_mean.correction(Tensor self, int[1]? dim, *, Scalar? correction, bool keepdim)"""
    correction = 1 if correction is None else correction
    dims = _dims(dim, self.dim())
    wide = self.float() if self.dtype in (torch.float16, torch.bfloat16) else self
    count = math.prod(self.shape[d] for d in dims)
    mean = wide.mean(dims, keepdim=True) if dims else wide
    squares = (wide - mean) * (wide - mean)
    total = squares.sum(dims, keepdim=True) if dims else squares
    rest = max(count - correction, 0)
    var = total / rest if rest else total * math.nan if count <= 1 else total * math.inf
    if not keepdim and dims:
        shape = [s for d, s in enumerate(self.shape) if d not in {x % self.dim() for x in dims}]
        var, mean = var.reshape(shape), mean.reshape(shape)
    return var.to(self.dtype), mean.to(self.dtype)


@decomposition("aten.var.correction")
def var(self, dim=None, *, correction=None, keepdim=False):
    """aten::var.correction(Tensor self, int[1]? dim, *, Scalar? correction, bool keepdim)"""
    return var_mean(self, dim, correction=correction, keepdim=keepdim)[0]


@decomposition("aten.std_mean.correction")
def std_mean(self, dim=None, *, correction=None, keepdim=False):
    """aten::std_mean.correction(Tensor self, int[1]? dim, *, Scalar? correction, bool keepdim)"""
    variance, mean = var_mean(self, dim, correction=correction, keepdim=keepdim)
    return variance.sqrt(), mean


@decomposition("aten.sort.stable")
def sort_stable(self, *, stable=None, dim=-1, descending=False):
    """aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False)"""
    # The converter of sort passes no `stable`: ties are put in order by a second sort, of indices.
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    values, indices = torch.ops.aten.sort.default(self, dim, descending)
    if not stable:
        return values, indices
    length = self.shape[dim]
    same = torch.ones_like(values, dtype=torch.int64)
    if length > 1:
        later = values.narrow(dim, 1, length - 1)
        earlier = values.narrow(dim, 0, length - 1)
        both_nan = (later != later) & (earlier != earlier)
        step = ((later != earlier) & ~both_nan).to(torch.int64)
        first = torch.zeros_like(indices.narrow(dim, 0, 1))
        same = torch.cumsum(torch.cat([first, step], dim), dim)
    else:
        same = same - 1
    keys = same * length + indices
    ordered = torch.ops.aten.sort.default(keys, dim, False)[0]
    indices = ordered - same * length
    return self.gather(dim, indices), indices


def _pick(self, places, dim, keepdim):
    values, indices = torch.ops.aten.sort.default(self, dim, False)
    value, index = values.gather(dim, places), indices.gather(dim, places)
    if keepdim:
        return value, index
    return value.squeeze(dim), index.squeeze(dim)


def _place(self, dim, at):
    shape = list(self.shape)
    shape[dim] = 1
    return torch.full(shape, at, dtype=torch.int64, device=self.device)


@decomposition("aten.kthvalue.default")
def kthvalue(self, k, dim=-1, keepdim=False):
    """aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False)"""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    return _pick(self, _place(self, dim, k - 1), dim, keepdim)


@decomposition("aten.nanmedian.dim")
def nanmedian_dim(self, dim, keepdim=False):
    """aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False); NaN sorts last"""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    known = (self == self).to(torch.int64).sum(dim, keepdim=True)
    return _pick(self, (known - 1).clamp(min=0) // 2, dim, keepdim)


@decomposition("aten.median.dim")
def median_dim(self, dim, keepdim=False):
    """aten::median.dim(Tensor self, int dim, bool keepdim=False); NaN wins"""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    middle = _place(self, dim, (self.shape[dim] - 1) // 2)
    if not self.is_floating_point():
        return _pick(self, middle, dim, keepdim)
    known = (self == self).to(torch.int64).sum(dim, keepdim=True)
    # The first NaN comes right behind all numbers.
    has_nan = known < self.shape[dim]
    return _pick(self, torch.where(has_nan, known, middle), dim, keepdim)


@decomposition("aten.median.default")
def median(self):
    """aten::median(Tensor self) -> Tensor"""
    return median_dim(self.reshape(-1), 0)[0]


@decomposition("aten.nanmedian.default")
def nanmedian(self):
    """aten::nanmedian(Tensor self) -> Tensor"""
    return nanmedian_dim(self.reshape(-1), 0)[0]


@decomposition("aten.mode.default")
def mode(self, dim=-1, keepdim=False):
    """aten::mode(Tensor self, int dim=-1, bool keepdim=False); the smallest of the most frequent"""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    values = torch.ops.aten.sort.default(self, dim, False)[0].movedim(dim, -1)
    same = (values.unsqueeze(-1) == values.unsqueeze(-2)).to(torch.int64)
    place = same.sum(-1).argmax(-1, keepdim=True)
    value = values.gather(-1, place)
    hits = (self.movedim(dim, -1) == value).to(torch.int64)
    steps = torch.arange(1, self.shape[dim] + 1, device=self.device)
    index = (hits * steps).argmax(-1, keepdim=True)
    value, index = value.movedim(-1, dim), index.movedim(-1, dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@decomposition("aten.histc.default")
def histc(self, bins=100, min=0, max=0):
    """aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor"""
    flat = self.reshape(-1)
    if min == max:
        low, high = flat.min(), flat.max()
        same = (low == high).to(flat.dtype)
        low, high = low - same, high + same
    else:
        low = torch.full([], min, dtype=flat.dtype, device=flat.device)
        high = torch.full([], max, dtype=flat.dtype, device=flat.device)
    place = ((flat - low) * bins / (high - low)).floor().clamp(0, bins - 1)
    inside = (flat >= low) & (flat <= high)
    rows = torch.arange(bins, device=flat.device).unsqueeze(1)
    return ((place.unsqueeze(0) == rows) & inside.unsqueeze(0)).to(flat.dtype).sum(1)


@decomposition("aten.bucketize.Tensor")
def bucketize(self, boundaries, *, out_int32=False, right=False):
    """aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32, bool right)"""
    below = boundaries <= self.unsqueeze(-1) if right else boundaries < self.unsqueeze(-1)
    return below.sum(-1).to(torch.int32 if out_int32 else torch.int64)


@decomposition("aten.bucketize.Scalar")
def bucketize_scalar(self, boundaries, *, out_int32=False, right=False):
    """aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32, bool right)"""
    below = boundaries <= self if right else boundaries < self
    return below.sum(-1).to(torch.int32 if out_int32 else torch.int64)


@decomposition("aten.searchsorted.Scalar")
def searchsorted(sorted_sequence, self, *, out_int32=False, right=False, side=None, sorter=None):
    """aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, ...) -> Tensor"""
    ordered = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    return bucketize_scalar(self, ordered, out_int32=out_int32, right=right or side == "right")


@decomposition("aten.dist.default")
def dist(self, other, p=2):
    """aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor"""
    gap = (self - other).abs()
    if p == math.inf:
        return gap.amax()
    if p == -math.inf:
        return gap.amin()
    if p == 0:
        return (gap != 0).to(gap.dtype).sum()
    return gap.pow(p).sum().pow(1 / p)
