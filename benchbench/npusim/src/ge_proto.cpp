// Just enough of a protobuf reader for ge.proto.ModelDef: graph name, node types, and the shapes
// and dtypes of the graph's outputs.
#include "ge_api.h"

namespace ge {
namespace {

enum WireType : int { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers of ge.proto.
enum ModelField : int { kModelGraph = 7 };
enum GraphField : int { kGraphName = 1, kGraphOp = 6 };
enum OpField : int { kOpType = 2, kOpInputDesc = 33, kOpOutputDesc = 34 };
enum DescField : int { kDescDtype = 2, kDescShape = 3 };
enum ShapeField : int { kShapeDim = 1 };

struct Span {
    const uint8_t *begin;
    const uint8_t *end;
    std::string text() const { return {reinterpret_cast<const char *>(begin), static_cast<size_t>(end - begin)}; }
};

struct Field {
    int number;
    int wire;
    uint64_t value;  // of a varint
    Span bytes;      // of a length-delimited field
};

uint64_t read_varint(Span &span) {
    uint64_t value = 0;
    for (int shift = 0; span.begin < span.end && shift < 64; shift += 7) {
        const uint8_t byte = *span.begin++;
        value |= static_cast<uint64_t>(byte & 127) << shift;
        if (!(byte & 128)) break;
    }
    return value;
}

void skip(Span &span, size_t bytes) { span.begin += std::min<size_t>(bytes, span.end - span.begin); }

template <class Visit> void each_field(Span span, Visit visit) {
    while (span.begin < span.end) {
        const uint64_t key = read_varint(span);
        Field field{static_cast<int>(key >> 3), static_cast<int>(key & 7), 0, {nullptr, nullptr}};
        switch (field.wire) {
            case kVarint: field.value = read_varint(span); break;
            case kBytes: {
                const uint64_t size = read_varint(span);
                if (size > static_cast<uint64_t>(span.end - span.begin)) return;  // torn
                field.bytes = {span.begin, span.begin + size};
                skip(span, size);
                break;
            }
            case kFixed32: skip(span, 4); continue;
            case kFixed64: skip(span, 8); continue;
            default: return;
        }
        visit(field);
    }
}

// ge.proto.DataType and ge::DataType number the same types differently.
int dtype_of_proto(int proto) {
    constexpr int kUndefined = 28;
    static const int first[] = {kUndefined, 0, 1, 2, 4, 6, 7, 3, 9, 8, 10, 12, 11};
    if (proto < 0) return kUndefined;
    if (proto < 13) return first[proto];
    return proto < kUndefined ? proto : proto + 1;
}

OutputDesc read_desc(Span span) {
    OutputDesc desc;
    int proto_dtype = 0;
    each_field(span, [&](const Field &field) {
        if (field.number == kDescDtype) proto_dtype = static_cast<int>(field.value);
        if (field.number != kDescShape) return;
        each_field(field.bytes, [&](const Field &dim) {
            if (dim.number != kShapeDim) return;
            if (dim.wire == kVarint) {
                desc.dims.push_back(static_cast<int64_t>(dim.value));
                return;
            }
            for (Span packed = dim.bytes; packed.begin < packed.end;)
                desc.dims.push_back(static_cast<int64_t>(read_varint(packed)));
        });
    });
    desc.dtype = dtype_of_proto(proto_dtype);
    return desc;
}

bool has_unknown_dim(const std::vector<OutputDesc> &descs) {
    for (const OutputDesc &desc : descs)
        for (const int64_t dim : desc.dims)
            if (dim < 0) return true;
    return false;
}

void read_op(GraphData &graph, Span span) {
    std::string type;
    std::vector<OutputDesc> inputs, outputs;
    each_field(span, [&](const Field &field) {
        if (field.wire != kBytes) return;
        if (field.number == kOpType) type = field.bytes.text();
        if (field.number == kOpInputDesc) inputs.push_back(read_desc(field.bytes));
        if (field.number == kOpOutputDesc) outputs.push_back(read_desc(field.bytes));
    });
    if (type == "NetOutput") graph.outputs = inputs;
    if ((type == "Data" || type == "RefData") && has_unknown_dim(outputs)) graph.dynamic = true;
    graph.types.push_back(type);
}

}  // namespace

void parse(GraphData &graph) {
    const auto *begin = reinterpret_cast<const uint8_t *>(graph.bytes.data());
    bool found = false;
    each_field({begin, begin + graph.bytes.size()}, [&](const Field &model) {
        if (model.number != kModelGraph || model.wire != kBytes || found) return;
        found = true;
        each_field(model.bytes, [&](const Field &field) {
            if (field.wire != kBytes) return;
            if (field.number == kGraphName) graph.name = field.bytes.text();
            if (field.number == kGraphOp) read_op(graph, field.bytes);
        });
    });
}

}  // namespace ge
