// aclTensor, aclScalar and their kin; descriptors of the older aclop path; element conversion.
#include "tensor.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace sim {
namespace {

enum DType : int {  // aclDataType
    kFloat = 0, kHalf = 1, kInt8 = 2, kInt32 = 3, kUint8 = 4, kInt16 = 6, kUint16 = 7, kUint32 = 8,
    kInt64 = 9, kUint64 = 10, kDouble = 11, kBool = 12, kComplex64 = 16, kComplex128 = 17, kBfloat16 = 27,
};

template <class T> T read_as(const char *at) { T value; memcpy(&value, at, sizeof value); return value; }
template <class T> void write_as(char *at, T value) { memcpy(at, &value, sizeof value); }

float from_bits(uint32_t bits) { float value; memcpy(&value, &bits, sizeof value); return value; }
uint32_t to_bits(float value) { uint32_t bits; memcpy(&bits, &value, sizeof bits); return bits; }

float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13);
    const float magnitude = exponent ? std::ldexp(1024.f + mantissa, static_cast<int>(exponent) - 25)
                                     : std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
}

uint16_t float_to_half(float value) {
    const uint16_t sign = to_bits(value) >> 16 & 0x8000;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (magnitude == 0) return sign;
    if (magnitude >= 65520.f) return sign | 0x7c00;  // the value half way to the next one above the largest
    int exponent;
    std::frexp(magnitude, &exponent);
    // Steps between neighbours: 2^(exponent - 11), and 2^-24 for subnormal values.
    const int step = std::max(exponent - 11, -24);
    const uint32_t steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -step)));
    // A carry out of the mantissa runs into the exponent, which is what rounding up means.
    return sign | (step == -24 ? steps : (static_cast<uint32_t>(step + 24) << 10) + steps);
}

float bfloat_to_float(uint16_t value) { return from_bits(static_cast<uint32_t>(value) << 16); }
uint16_t float_to_bfloat(float value) {
    const uint32_t bits = to_bits(value);
    if (std::isnan(value)) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

bool is_integer(int dtype) {
    switch (dtype) {
        case kInt8: case kInt16: case kInt32: case kInt64: case kUint8: case kUint16: case kUint32:
        case kUint64: case kBool: return true;
        default: return false;
    }
}

double read_real(const char *at, int dtype) {
    switch (dtype) {
        case kFloat: case kComplex64: return read_as<float>(at);
        case kDouble: case kComplex128: return read_as<double>(at);
        case kHalf: return half_to_float(read_as<uint16_t>(at));
        case kBfloat16: return bfloat_to_float(read_as<uint16_t>(at));
        default: return 0;
    }
}

int64_t read_integer(const char *at, int dtype) {
    switch (dtype) {
        case kInt8: return read_as<int8_t>(at);
        case kUint8: return read_as<uint8_t>(at);
        case kBool: return read_as<uint8_t>(at) != 0;
        case kInt16: return read_as<int16_t>(at);
        case kUint16: return read_as<uint16_t>(at);
        case kInt32: return read_as<int32_t>(at);
        case kUint32: return read_as<uint32_t>(at);
        default: return read_as<int64_t>(at);
    }
}

void write_real(char *at, int dtype, double value) {
    switch (dtype) {
        case kFloat: write_as(at, static_cast<float>(value)); break;
        case kDouble: write_as(at, value); break;
        case kHalf: write_as(at, float_to_half(static_cast<float>(value))); break;
        case kBfloat16: write_as(at, float_to_bfloat(static_cast<float>(value))); break;
        case kComplex64: write_as(at, static_cast<float>(value)); write_as(at + 4, 0.f); break;
        case kComplex128: write_as(at, value); write_as(at + 8, 0.0); break;
        default: break;
    }
}

void write_integer(char *at, int dtype, int64_t value) {
    switch (dtype) {
        case kInt8: case kUint8: write_as(at, static_cast<uint8_t>(value)); break;
        case kInt16: case kUint16: write_as(at, static_cast<uint16_t>(value)); break;
        case kInt32: case kUint32: write_as(at, static_cast<uint32_t>(value)); break;
        default: write_as(at, value);
    }
}

void convert(char *to, int to_dtype, const char *from, int from_dtype) {
    if (is_integer(from_dtype)) {
        const int64_t value = read_integer(from, from_dtype);
        if (to_dtype == kBool) write_as<uint8_t>(to, value != 0);
        else if (is_integer(to_dtype)) write_integer(to, to_dtype, value);
        else write_real(to, to_dtype, static_cast<double>(value));
        return;
    }
    const double value = read_real(from, from_dtype);
    if (to_dtype == kBool) write_as<uint8_t>(to, value != 0);
    else if (is_integer(to_dtype)) write_integer(to, to_dtype, static_cast<int64_t>(value));
    else write_real(to, to_dtype, value);
}

bool is_contiguous(const AclTensor &tensor) {
    int64_t expected = 1;
    for (size_t i = tensor.sizes.size(); i-- > 0;) {
        if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
        expected *= tensor.sizes[i];
    }
    return true;
}

}  // namespace

size_t element_size(int dtype) {
    switch (dtype) {
        case kHalf: case kInt16: case kUint16: case kBfloat16: return 2;
        case kInt8: case kUint8: case kBool: case 34: case 35: case 36: case 37: return 1;
        case kInt64: case kUint64: case kDouble: case kComplex64: return 8;
        case kComplex128: return 16;
        default: return 4;
    }
}

void copy_elements(const AclTensor &to, const AclTensor &from) {
    const size_t rank = to.sizes.size(), lead = rank - from.sizes.size();
    const size_t to_bytes = element_size(to.dtype), from_bytes = element_size(from.dtype);
    size_t count = 1;
    for (const int64_t size : to.sizes) count *= size;
    if (to.dtype == from.dtype && to.sizes == from.sizes && is_contiguous(to) && is_contiguous(from)) {
        memmove(to.data + to.offset * to_bytes, from.data + from.offset * from_bytes, count * to_bytes);
        return;
    }
    std::vector<int64_t> index(rank, 0);
    for (size_t done = 0; done < count; done++) {
        int64_t into = to.offset, out_of = from.offset;
        for (size_t i = 0; i < rank; i++) {
            into += index[i] * to.strides[i];
            if (i >= lead && from.sizes[i - lead] != 1) out_of += index[i] * from.strides[i - lead];
        }
        char *target = to.data + into * static_cast<int64_t>(to_bytes);
        const char *source = from.data + out_of * static_cast<int64_t>(from_bytes);
        if (to.dtype == from.dtype) memmove(target, source, to_bytes);
        else convert(target, to.dtype, source, from.dtype);
        for (size_t i = rank; i-- > 0;) {
            if (++index[i] < to.sizes[i]) break;
            index[i] = 0;
        }
    }
}

}  // namespace sim

using sim::AclScalar;
using sim::AclTensor;
using sim::AclTensorList;

NPUSIM_EXPORT Handle aclCreateTensor(const int64_t *sizes, uint64_t rank, int dtype, const int64_t *strides,
                                     int64_t offset, int, const int64_t *, uint64_t, void *data) {
    return new AclTensor{dtype, {sizes, sizes + rank}, {strides, strides + rank}, offset, static_cast<char *>(data)};
}
NPUSIM_EXPORT int aclDestroyTensor(Handle tensor) { delete static_cast<AclTensor *>(tensor); return sim::kOk; }
NPUSIM_EXPORT Handle aclCreateScalar(void *value, int dtype) {
    auto *scalar = new AclScalar{dtype, {}};
    memcpy(scalar->bytes, value, sim::element_size(dtype));
    return scalar;
}
NPUSIM_EXPORT int aclDestroyScalar(Handle scalar) { delete static_cast<AclScalar *>(scalar); return sim::kOk; }
// The caller frees the array with delete[].
NPUSIM_EXPORT aclError aclGetViewShape(Handle handle, int64_t **sizes, uint64_t *rank) {
    const auto *tensor = static_cast<AclTensor *>(handle);
    *rank = tensor->sizes.size();
    *sizes = new int64_t[*rank + 1];
    std::copy(tensor->sizes.begin(), tensor->sizes.end(), *sizes);
    return sim::kOk;
}
NPUSIM_EXPORT Handle aclCreateTensorList(AclTensor **tensors, uint64_t count) { return new AclTensorList{{tensors, tensors + count}}; }
// A list owns its tensors.
NPUSIM_EXPORT int aclDestroyTensorList(Handle handle) {
    auto *list = static_cast<AclTensorList *>(handle);
    for (AclTensor *tensor : list->tensors) delete tensor;
    delete list;
    return sim::kOk;
}

// ---- arguments that no native kernel looks into
#define NPUSIM_ARRAY(name)                                                        \
    NPUSIM_EXPORT Handle aclCreate##name(...) { return calloc(1, 64); }           \
    NPUSIM_EXPORT int aclDestroy##name(Handle array) { free(array); return sim::kOk; }
NPUSIM_ARRAY(IntArray)
NPUSIM_ARRAY(FloatArray)
NPUSIM_ARRAY(BoolArray)
NPUSIM_ARRAY(ScalarList)

// ---- descriptors of the older aclop path
namespace {
struct Descriptor {
    int dtype, format;
    std::vector<int64_t> sizes;
};
struct Buffer {
    void *data;
    size_t bytes;
};
}  // namespace

NPUSIM_EXPORT Handle aclCreateTensorDesc(int dtype, int rank, const int64_t *sizes, int format) {
    return new Descriptor{dtype, format, {sizes, sizes + (rank > 0 ? rank : 0)}};
}
NPUSIM_EXPORT void aclDestroyTensorDesc(Handle handle) { delete static_cast<Descriptor *>(handle); }
NPUSIM_EXPORT int aclGetTensorDescType(Handle handle) { return static_cast<Descriptor *>(handle)->dtype; }
NPUSIM_EXPORT int aclGetTensorDescFormat(Handle handle) { return static_cast<Descriptor *>(handle)->format; }
NPUSIM_EXPORT size_t aclGetTensorDescNumDims(Handle handle) { return static_cast<Descriptor *>(handle)->sizes.size(); }
NPUSIM_EXPORT aclError aclGetTensorDescDimV2(Handle handle, size_t index, int64_t *value) {
    const auto &sizes = static_cast<Descriptor *>(handle)->sizes;
    if (index >= sizes.size()) return sim::kInvalidParam;
    *value = sizes[index];
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclSetTensorFormat(Handle, int) { return sim::kOk; }
NPUSIM_EXPORT aclError aclSetTensorShape(Handle, int, const int64_t *) { return sim::kOk; }
NPUSIM_EXPORT aclError aclSetTensorPlaceMent(Handle, int) { return sim::kOk; }
NPUSIM_EXPORT void aclSetTensorDescName(Handle, const char *) {}
NPUSIM_EXPORT Handle aclCreateDataBuffer(void *data, size_t bytes) { return new Buffer{data, bytes}; }
NPUSIM_EXPORT aclError aclDestroyDataBuffer(Handle handle) { delete static_cast<Buffer *>(handle); return sim::kOk; }
NPUSIM_EXPORT Handle aclopCreateAttr() { return new int(0); }
NPUSIM_EXPORT void aclopDestroyAttr(Handle handle) { delete static_cast<int *>(handle); }
