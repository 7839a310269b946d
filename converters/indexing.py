"""Writing at indices.

aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) and
aten::_unsafe_index_put: TensorScatterUpdate(x, indices, updates), with accumulate
TensorScatterAdd. The indexed dimensions come to the front, the index tensors are broadcast and
stacked as the last dimension of ``indices``. A mask that covers all dimensions with one value is
SelectV2. aten::masked_scatter: MaskedScatter. aten::scatter_reduce.two(Tensor self, int dim,
Tensor index, Tensor src, str reduce, *, bool include_self=True): TensorScatterAdd, -Max, -Min.

Where several values go to one place without accumulate, which one stays is undefined, as in eager.
"""

from benchbench.converter_kit import DT, Converters, const, ge, ints, positive, promote, sizes

OPS = (
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    "aten.masked_scatter.default",
    "aten.scatter_reduce.two",
)
KIND = "converter"

converter = Converters()
register = converter.register


def _broadcast(shapes):
    rank = max(len(shape) for shape in shapes)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [max(column) if 0 not in column else 0 for column in zip(*padded, strict=True)]


def _from_front(index, size):
    """Return an index with negative places counted from the front."""
    index = promote(index, to=DT.DT_INT64)
    behind = ge.Less(index, ints(0))
    return ge.SelectV2(behind, ge.Add(index, ints(size)), index)


@converter("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(self, indices, values, accumulate=False, meta_outputs=None):
    shape = sizes(self)
    given = [place for place, index in enumerate(indices) if index is not None]
    masks = [place for place in given if indices[place].dtype in (DT.DT_BOOL, DT.DT_UINT8)]
    if masks:
        return _masked(self, indices, values, accumulate, given)
    # The result of indexing has the indexed dimensions in place where they are neighbours.
    neighbours = given == list(range(given[0], given[0] + len(given)))
    order = given + [place for place in range(len(shape)) if place not in given]
    index_shapes = [sizes(indices[place]) for place in given]
    common = _broadcast(index_shapes)
    rest = [shape[place] for place in order[len(given) :]]
    at = given[0] if neighbours else 0
    result_shape = rest[:at] + common + rest[at:]
    target = ge.Transpose(self, ints(order)) if order != sorted(order) else self
    if neighbours and at:
        turn = [
            *range(at, at + len(common)),
            *range(at),
            *range(at + len(common), len(result_shape)),
        ]
        values = ge.Transpose(ge.BroadcastTo(values, ints(result_shape)), ints(turn))
    else:
        values = ge.BroadcastTo(values, ints(result_shape))
    columns = [
        ge.Unsqueeze(
            ge.BroadcastTo(_from_front(indices[place], shape[place]), ints(common)),
            axes=[len(common)],
        )
        for place in given
    ]
    where = (
        ge.ConcatV2(columns, ints(len(common)), N=len(columns)) if len(columns) > 1 else columns[0]
    )
    write = ge.TensorScatterAdd if accumulate else ge.TensorScatterUpdate
    written = write(target, where, promote(values, to=self.dtype))
    if order == sorted(order):
        return written
    back = [order.index(place) for place in range(len(order))]
    return ge.Transpose(written, ints(back))


def _masked(self, indices, values, accumulate, given):
    """Return self with one value where a mask of its leading dimensions holds."""
    if (
        accumulate
        or given != [0]
        or (values.rank not in (0, None) and sizes(values) not in ([], [1]))
    ):
        raise NotImplementedError(
            "index_put with a mask: only one mask and one value; more values depend on the data"
        )
    mask = promote(indices[0], to=DT.DT_BOOL)
    shape = sizes(indices[0])
    extra = len(sizes(self)) - len(shape)
    if extra:
        mask = ge.Reshape(mask, ints(shape + [1] * extra))
    value = ge.Reshape(promote(values, to=self.dtype), ints([1] * len(sizes(self))))
    return ge.SelectV2(mask, value, self)


@converter("aten.masked_scatter.default")
def masked_scatter(self, mask, source, meta_outputs=None):
    mask = ge.BroadcastTo(promote(mask, to=DT.DT_BOOL), ints(meta_outputs.size))
    self = ge.BroadcastTo(self, ints(meta_outputs.size))
    return ge.MaskedScatter(self, mask, source)


@converter("aten.scatter_reduce.two")
def scatter_reduce(self, dim, index, src, reduce, *, include_self=True, meta_outputs=None):
    rank = self.rank
    if rank == 0:
        raise NotImplementedError("scatter_reduce of a tensor without dimensions")
    shape, dim = sizes(index), positive(dim, rank)
    source_shape = sizes(src)
    if source_shape != shape:
        src = ge.Slice(src, ints([0] * rank), ints(shape))
    columns = []
    for place in range(rank):
        if place == dim:
            column = promote(index, to=DT.DT_INT64)
        else:
            steps = [1] * rank
            steps[place] = shape[place]
            column = ge.Reshape(ints(list(range(shape[place]))), ints(steps))
            column = ge.BroadcastTo(column, ints(shape))
        columns.append(ge.Unsqueeze(column, axes=[rank]))
    where = ge.ConcatV2(columns, ints(rank), N=rank) if rank > 1 else columns[0]
    base = self
    if not include_self:
        neutral = _neutral(reduce, self.dtype)
        base = ge.TensorScatterUpdate(
            self, where, ge.Fill(ints(shape), const(neutral, dtype=self.dtype))
        )
    if reduce == "amax":
        return ge.TensorScatterMax(base, where, src)
    if reduce == "amin":
        return ge.TensorScatterMin(base, where, src)
    if reduce == "prod":
        return ge.ScatterElements(base, index, src, axis=dim, reduction="mul")
    total = ge.TensorScatterAdd(base, where, src)
    if reduce == "sum":
        return total
    ones = ge.Fill(ints(shape), const(1, dtype=self.dtype))
    start = 1 if include_self else 0
    counts = ge.Fill(ints(sizes(self)), const(start, dtype=self.dtype))
    counts = ge.TensorScatterAdd(counts, where, ones)
    counts = ge.Maximum(counts, const(1, dtype=self.dtype))
    floating = self.dtype in (DT.DT_FLOAT, DT.DT_FLOAT16, DT.DT_BF16, DT.DT_DOUBLE)
    return ge.RealDiv(total, counts) if floating else ge.FloorDiv(total, counts)


def _neutral(reduce, dtype):
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    floating = dtype in (DT.DT_FLOAT, DT.DT_FLOAT16, DT.DT_BF16, DT.DT_DOUBLE)
    if not floating:
        bits = {DT.DT_INT8: 7, DT.DT_INT16: 15, DT.DT_INT32: 31, DT.DT_INT64: 63}.get(dtype)
        if bits is None:
            raise NotImplementedError("scatter_reduce without self for this dtype")
        return -(2**bits) if reduce == "amax" else 2**bits - 1
    return float("-inf") if reduce == "amax" else float("inf")
