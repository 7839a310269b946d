// The metadata objects of aclnn calls, and the one loop that all native kernels share.
#pragma once

#include "sim.h"

namespace sim {

struct AclTensor {
    int dtype;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset;
    char *data;
};

struct AclScalar {
    int dtype;
    char bytes[16];
};

struct AclTensorList {
    std::vector<AclTensor *> tensors;
};

// to[...] = from[...], with broadcasting and conversion.
void copy_elements(const AclTensor &to, const AclTensor &from);

}  // namespace sim
