"""Factorisations that have an IR operator of their own.

aten::linalg_inv_ex: MatrixInverse; aten::linalg_cholesky_ex: Cholesky; aten::linalg_qr: Qr;
aten::_linalg_det: MatrixDeterminant (its two factors, which only a gradient needs, are left empty
and refused where something uses them); aten::linalg_solve_triangular: MatrixTriangularSolve;
aten::_linalg_eigh: SelfAdjointEig; aten::_linalg_svd: Svd. Batches are taken as they are; the
``info`` outputs are zero, because the IR operators report no errors.
"""

from benchbench.converter_kit import DT, Converters, const, ge, ints

OPS = (
    "aten.linalg_inv_ex.default",
    "aten.linalg_cholesky_ex.default",
    "aten.linalg_qr.default",
    "aten.linalg_solve_triangular.default",
    "aten._linalg_svd.default",
    "aten._linalg_eigh.default",
)
KIND = "converter"

converter = Converters()
register = converter.register


def _turned(x, rank):
    order = list(range(rank))
    order[-1], order[-2] = order[-2], order[-1]
    return ge.Transpose(x, ints(order))


def _no_info(meta):
    return ge.Fill(ints(meta.size), const(0, dtype=DT.DT_INT32))


@converter("aten.linalg_inv_ex.default")
def inv_ex(A, *, check_errors=False, meta_outputs=None):
    return ge.MatrixInverse(A), _no_info(meta_outputs[1])


@converter("aten.linalg_cholesky_ex.default")
def cholesky_ex(self, *, upper=False, check_errors=False, meta_outputs=None):
    rank = self.rank
    lower = ge.Cholesky(self)
    return (_turned(lower, rank) if upper else lower), _no_info(meta_outputs[1])


@converter("aten.linalg_qr.default")
def qr(A, mode="reduced", meta_outputs=None):
    if mode == "r":
        raise NotImplementedError("linalg_qr with mode='r' has no converter")
    return ge.Qr(A, full_matrices=mode == "complete")


@converter("aten.linalg_solve_triangular.default")
def solve_triangular(self, B, *, upper, left=True, unitriangular=False, meta_outputs=None):
    if not left or unitriangular:
        raise NotImplementedError("linalg_solve_triangular: only left=True, unitriangular=False")
    return ge.MatrixTriangularSolve(self, B, lower=not upper)


@converter("aten._linalg_svd.default")
def svd(A, full_matrices=False, compute_uv=True, *, driver=None, meta_outputs=None):
    rank = A.rank
    sigma, u, v = ge.Svd(A, compute_uv=compute_uv, full_matrices=full_matrices)
    return u, sigma, _turned(v, rank)


@converter("aten._linalg_eigh.default")
def eigh(A, UPLO="L", compute_v=True, meta_outputs=None):
    if UPLO != "L":
        raise NotImplementedError("_linalg_eigh: only the lower triangle")
    values, vectors = ge.SelfAdjointEig(A, compute_v=compute_v)
    return values, vectors
