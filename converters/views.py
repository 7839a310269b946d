"""Views and copies of views, taken apart into reshapes, permutes and index_select.

squeeze.dims, diagonal, diagonal_copy, unfold, diagonal_scatter, index_copy, index_fill, the copy
forms of views, empty_strided, take of a part; see each function.
"""

import torch

from benchbench.converter_kit import Decompositions

OPS = (
    "aten.squeeze.dims",
    "aten.diagonal.default",
    "aten.diagonal_copy.default",
    "aten.unfold.default",
    "aten.unfold_copy.default",
    "aten.diagonal_scatter.default",
    "aten.index_copy.default",
    "aten.index_fill.int_Scalar",
    "aten.index_fill.int_Tensor",
    "aten.empty_strided.default",
    "aten.empty_permuted.default",
    "aten.view_copy.default",
    "aten.permute_copy.default",
    "aten.squeeze_copy.default",
    "aten.squeeze_copy.dim",
    "aten.squeeze_copy.dims",
    "aten.unbind_copy.int",
    "aten.narrow_copy.default",
    "aten.select_copy.int",
    "aten.slice_copy.Tensor",
    "aten.detach_copy.default",
    "aten.as_strided_copy.default",
    "aten.repeat_interleave.self_int",
    "aten.trace.default",
    "aten.put.default",
)
KIND = "decomposition"

decomposition = Decompositions()
decompositions = decomposition.table
aten = torch.ops.aten


def _front(dim, rank):
    return dim + max(rank, 1) if dim < 0 else dim


@decomposition("aten.squeeze.dims")
def squeeze_dims(self, dim):
    """aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)"""
    gone = {_front(d, self.dim()) for d in dim}
    shape = [s for d, s in enumerate(self.shape) if not (d in gone and s == 1)]
    return aten.view.default(self, shape) if len(shape) != self.dim() else aten.alias.default(self)


def _diagonal_places(shape, offset, dim1, dim2, device):
    rows, columns = shape[dim1], shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    first = offset if offset >= 0 else -offset * columns
    return torch.arange(length, device=device) * (columns + 1) + first


@decomposition("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(self, offset=0, dim1=0, dim2=1):
    """aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)"""
    rank = self.dim()
    dim1, dim2 = _front(dim1, rank), _front(dim2, rank)
    rest = [d for d in range(rank) if d not in (dim1, dim2)]
    places = _diagonal_places(self.shape, offset, dim1, dim2, self.device)
    flat = self.permute([*rest, dim1, dim2]).reshape([*(self.shape[d] for d in rest), -1])
    return flat.index_select(-1, places)


@decomposition("aten.diagonal_scatter.default")
def diagonal_scatter(self, src, offset=0, dim1=0, dim2=1):
    """aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1)"""
    rank = self.dim()
    dim1, dim2 = _front(dim1, rank), _front(dim2, rank)
    rest = [d for d in range(rank) if d not in (dim1, dim2)]
    order = [*rest, dim1, dim2]
    places = _diagonal_places(self.shape, offset, dim1, dim2, self.device)
    turned = self.permute(order)
    flat = turned.reshape([*(self.shape[d] for d in rest), -1])
    flat = aten.scatter.src(flat, flat.dim() - 1, places.expand(src.shape), src.to(self.dtype))
    return flat.reshape(turned.shape).permute([order.index(d) for d in range(rank)])


@decomposition("aten.trace.default")
def trace(self):
    """aten::trace(Tensor self) -> Tensor"""
    return diagonal(self).sum()


@decomposition("aten.unfold.default", "aten.unfold_copy.default")
def unfold(self, dimension, size, step):
    """aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)"""
    if self.dim() == 0:
        return self.reshape(1)[:size]
    dim = _front(dimension, self.dim())
    count = (self.shape[dim] - size) // step + 1
    starts = torch.arange(count, device=self.device) * step
    places = (starts.unsqueeze(1) + torch.arange(size, device=self.device)).reshape(-1)
    parts = self.index_select(dim, places)
    shape = list(self.shape)
    parts = parts.reshape([*shape[:dim], count, size, *shape[dim + 1 :]])
    order = [d for d in range(parts.dim()) if d != dim + 1]
    return parts.permute([*order, dim + 1])


def _along(index, shape, dim):
    steps = [1] * len(shape)
    steps[dim] = index.numel()
    full = list(shape)
    full[dim] = index.numel()
    return index.reshape(steps).expand(full)


@decomposition("aten.index_copy.default")
def index_copy(self, dim, index, source):
    """aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor"""
    if self.dim() == 0:
        return source.reshape(self.shape).clone()
    dim = _front(dim, self.dim())
    index = _along(index, self.shape, dim)
    return aten.scatter.src(self, dim, index, source.reshape(index.shape))


@decomposition("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(self, dim, index, value):
    """aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    if self.dim() == 0:
        return index_fill(self.reshape(1), 0, index, value).reshape([])
    dim = _front(dim, self.dim())
    places = torch.arange(self.shape[dim], device=self.device)
    index = torch.where(index < 0, index + self.shape[dim], index)
    hit = (places.unsqueeze(1) == index.reshape(1, -1)).sum(1) > 0
    steps = [1] * self.dim()
    steps[dim] = self.shape[dim]
    hit = hit.reshape(steps)
    if not isinstance(value, torch.Tensor):
        return aten.where.self(hit, aten.full_like.default(self, value), self)
    return aten.where.self(hit, value.to(self.dtype), self)


@decomposition("aten.put.default")
def put(self, index, source, accumulate=False):
    """aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor"""
    flat = self.reshape(-1)
    index = index.reshape(-1)
    flat = aten.index_put.default(flat, [index], source.reshape(-1), accumulate)
    return flat.reshape(self.shape)


@decomposition("aten.empty_strided.default")
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    """aten::empty_strided(SymInt[] size, SymInt[] stride, ...) -> Tensor; a graph has no strides"""
    return torch.empty(size, dtype=dtype, device=device)


@decomposition("aten.empty_permuted.default")
def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, pin_memory=None):
    """aten::empty_permuted(SymInt[] size, int[] physical_layout, ...) -> Tensor"""
    return torch.empty(size, dtype=dtype, device=device)


@decomposition("aten.view_copy.default")
def view_copy(self, size):
    """aten::view_copy(Tensor self, SymInt[] size) -> Tensor"""
    return self.reshape(size).clone()


@decomposition("aten.permute_copy.default")
def permute_copy(self, dims):
    """aten::permute_copy(Tensor self, int[] dims) -> Tensor"""
    return self.permute(dims).clone(memory_format=torch.contiguous_format)


@decomposition("aten.squeeze_copy.default")
def squeeze_copy(self):
    """aten::squeeze_copy(Tensor self) -> Tensor"""
    return self.reshape([s for s in self.shape if s != 1]).clone()


@decomposition("aten.squeeze_copy.dim")
def squeeze_copy_dim(self, dim):
    """aten::squeeze_copy.dim(Tensor self, int dim) -> Tensor"""
    return self.squeeze(dim).clone()


@decomposition("aten.squeeze_copy.dims")
def squeeze_copy_dims(self, dim):
    """aten::squeeze_copy.dims(Tensor self, int[] dim) -> Tensor"""
    return squeeze_dims(self, dim).clone()


@decomposition("aten.unbind_copy.int")
def unbind_copy(self, dim=0):
    """aten::unbind_copy.int(Tensor self, int dim=0) -> Tensor[]"""
    return [part.clone() for part in self.unbind(dim)]


@decomposition("aten.narrow_copy.default")
def narrow_copy(self, dim, start, length):
    """aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor"""
    if start < 0:
        start += self.shape[dim]
    return aten.slice.Tensor(self, dim, start, start + length).clone()


@decomposition("aten.select_copy.int")
def select_copy(self, dim, index):
    """aten::select_copy.int(Tensor self, int dim, SymInt index) -> Tensor"""
    return self.select(dim, index).clone()


@decomposition("aten.slice_copy.Tensor")
def slice_copy(self, dim=0, start=None, end=None, step=1):
    """aten::slice_copy.Tensor(Tensor self, int dim=0, SymInt? start, SymInt? end, SymInt step=1)"""
    return aten.slice.Tensor(self, dim, start, end, step).clone()


@decomposition("aten.detach_copy.default")
def detach_copy(self):
    """aten::detach_copy(Tensor self) -> Tensor"""
    return self.clone()


@decomposition("aten.as_strided_copy.default")
def as_strided_copy(self, size, stride, storage_offset=None):
    """aten::as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset)"""
    return aten.as_strided.default(self, size, stride, storage_offset).clone()


@decomposition("aten.repeat_interleave.self_int")
def repeat_interleave(self, repeats, dim=None, output_size=None):
    """aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None)"""
    if dim is None:
        self, dim = self.reshape(-1), 0
    dim = _front(dim, self.dim())
    shape = list(self.shape)
    wide = self.unsqueeze(dim + 1).expand([*shape[: dim + 1], repeats, *shape[dim + 1 :]])
    return wide.reshape([*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]])
