// Kernels. Native are the copies, casts and fills that torch_npu itself calls below Tensor.copy_,
// .to() and zeros(). All others are opaque: generated stubs (see builder.py) that are counted and
// cost a task. Opaque kernels compute nothing, so they are refused as soon as the Python kernels
// are there to compute: a benchmark must not compare rubbish.
#include "tensor.h"

using sim::AclScalar;
using sim::AclTensor;
using sim::AclTensorList;

namespace {

// The first half of an aclnn call closes over the work and hands it over as the "executor".
int prepare(sim::Work work, uint64_t *workspace, Handle *executor) {
    *workspace = 0;
    *executor = new sim::Work(std::move(work));
    return sim::kOk;
}

int execute(const char *name, Handle executor, Handle stream) {
    std::unique_ptr<sim::Work> work(static_cast<sim::Work *>(executor));
    if (const int code = sim::count_device(name)) return code;
    return sim::submit(sim::stream_of(stream), std::move(*work));
}

int prepare_copy(const AclTensor *to, const AclTensor *from, uint64_t *workspace, Handle *executor) {
    return prepare([to = *to, from = *from] { sim::copy_elements(to, from); return 0; }, workspace, executor);
}

int prepare_fill(const AclTensor *to, const AclScalar &value, uint64_t *workspace, Handle *executor) {
    return prepare([to = *to, value = AclScalar(value)]() mutable {
        sim::copy_elements(to, AclTensor{value.dtype, {}, {}, 0, value.bytes});
        return 0;
    }, workspace, executor);
}

AclScalar whole_number(uint8_t value) { return AclScalar{4 /* uint8 */, {static_cast<char>(value)}}; }

int opaque(const char *name, Handle stream) {
    if (const int code = sim::count_device(name)) return code;
    if (sim::config.refuse_opaque) {
        sim::set_error(std::string("[npusim] the simulated NPU has no kernel for ") + name);
        return sim::kInnerError;
    }
    sim::count("npusim:opaque");
    return sim::submit(sim::stream_of(stream), [] { return 0; });
}

}  // namespace

#define NPUSIM_EXECUTE(name) \
    NPUSIM_EXPORT int name(void *, uint64_t, Handle executor, Handle stream) { return execute(#name, executor, stream); }

NPUSIM_EXPORT int aclnnInplaceCopyGetWorkspaceSize(AclTensor *to, AclTensor *from, uint64_t *workspace, Handle *executor) {
    return prepare_copy(to, from, workspace, executor);
}
NPUSIM_EXECUTE(aclnnInplaceCopy)

NPUSIM_EXPORT int aclnnCastGetWorkspaceSize(AclTensor *from, int, AclTensor *to, uint64_t *workspace, Handle *executor) {
    return prepare_copy(to, from, workspace, executor);
}
NPUSIM_EXECUTE(aclnnCast)

NPUSIM_EXPORT int aclnnForeachCopyGetWorkspaceSize(AclTensorList *from, AclTensorList *to, uint64_t *workspace, Handle *executor) {
    std::vector<std::pair<AclTensor, AclTensor>> pairs;
    for (size_t i = 0; i < to->tensors.size(); i++) pairs.emplace_back(*to->tensors[i], *from->tensors[i]);
    return prepare([pairs] {
        for (const auto &pair : pairs) sim::copy_elements(pair.first, pair.second);
        return 0;
    }, workspace, executor);
}
NPUSIM_EXECUTE(aclnnForeachCopy)

NPUSIM_EXPORT int aclnnInplaceZeroGetWorkspaceSize(AclTensor *to, uint64_t *workspace, Handle *executor) {
    return prepare_fill(to, whole_number(0), workspace, executor);
}
NPUSIM_EXECUTE(aclnnInplaceZero)

NPUSIM_EXPORT int aclnnInplaceOneGetWorkspaceSize(AclTensor *to, uint64_t *workspace, Handle *executor) {
    return prepare_fill(to, whole_number(1), workspace, executor);
}
NPUSIM_EXECUTE(aclnnInplaceOne)

NPUSIM_EXPORT int aclnnInplaceFillScalarGetWorkspaceSize(AclTensor *to, AclScalar *value, uint64_t *workspace, Handle *executor) {
    return prepare_fill(to, *value, workspace, executor);
}
NPUSIM_EXECUTE(aclnnInplaceFillScalar)

// Each generated stub ends here. Its *GetWorkspaceSize leaves the caller's zeroes untouched.
NPUSIM_EXPORT int npusim_opaque(const char *name, Handle stream) { return opaque(name, stream); }

NPUSIM_EXPORT aclError aclopCompileAndExecute(const char *op, int, const void *const *, const void *const *, int,
                                              void *const *, void *const *, const void *, int, int, const char *, Handle stream) {
    return opaque((std::string("aclop:") + op).c_str(), stream);
}
NPUSIM_EXPORT aclError aclopCompileAndExecuteV2(const char *op, int, Handle *, Handle *, int, Handle *, Handle *, Handle,
                                                int, int, const char *, Handle stream) {
    return opaque((std::string("aclop:") + op).c_str(), stream);
}
