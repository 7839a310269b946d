// The part of ge:: that torchair links to. Layouts matter, because torchair's inlined code touches
// them: each class holds exactly one shared_ptr (Operator a virtual destructor besides), and
// signatures match CANN's headers, since they are the symbol names.
#pragma once

#include "sim.h"

namespace ge {

using Status = uint32_t;
enum DataType : int {};
enum Format : int {};
enum Placement : int {};

class AscendString {
  public:
    AscendString() = default;
    explicit AscendString(const char *text);
    const char *GetString() const;
    bool operator<(const AscendString &other) const;
    bool operator==(const AscendString &other) const;

  private:
    std::shared_ptr<std::string> text_;
};
using StringMap = std::map<AscendString, AscendString>;
using StringPairs = std::vector<std::pair<AscendString, AscendString>>;

class Shape {
  public:
    explicit Shape(const std::vector<int64_t> &dims);
    std::vector<int64_t> GetDims() const;

  private:
    std::shared_ptr<std::vector<int64_t>> dims_;
};

struct TensorDescData {
    std::vector<int64_t> shape, origin_shape;
    int format = 2, origin_format = 2;  // ND
    int dtype = 0, placement = 0;
};

class TensorDesc {
  public:
    TensorDesc();
    Shape GetShape() const;
    Format GetFormat() const;
    DataType GetDataType() const;
    Placement GetPlacement() const;
    void SetFormat(Format format);
    void SetOriginFormat(Format format);
    void SetOriginShape(const Shape &shape);
    void SetDataType(DataType dtype);
    void SetPlacement(Placement placement);

    std::shared_ptr<TensorDescData> data;
};

using Deleter = std::function<void(uint8_t *)>;

struct TensorData {
    TensorDesc desc;
    uint8_t *bytes = nullptr;
    Deleter deleter;
    ~TensorData();
};

class Tensor {
  public:
    Tensor();
    Status SetTensorDesc(const TensorDesc &desc);
    TensorDesc GetTensorDesc() const;
    Status SetDataType(const DataType &dtype);
    DataType GetDataType() const;
    Status SetFormat(const Format &format);
    Format GetFormat() const;
    Status SetPlacement(const Placement &placement);
    Placement GetPlacement() const;
    Status SetShapeDimNum(size_t rank);
    size_t GetShapeDimNum() const;
    Status SetShapeDim(size_t index, int64_t size);
    int64_t GetShapeDim(size_t index) const;
    Status SetOriginShapeDimNum(size_t rank);
    size_t GetOriginShapeDimNum() const;
    Status SetOriginShapeDim(size_t index, int64_t size);
    Status SetData(uint8_t *bytes, size_t size, const Deleter &deleter);
    Status ResetData(uint8_t *bytes, size_t size, const Deleter &deleter);
    std::unique_ptr<uint8_t[], Deleter> ResetData();
    const uint8_t *GetData() const;
    uint8_t *GetData();

    std::shared_ptr<TensorData> data;
};

struct OutputDesc {
    std::vector<int64_t> dims;
    int dtype = 0;
};

struct GraphData {
    std::string name, bytes;
    std::vector<std::string> types;    // IR type of each node
    std::vector<OutputDesc> outputs;
    bool dynamic = false;              // an input has an unknown dimension
    std::map<std::string, std::string> options;  // those it was compiled with
};
// Reads nodes and outputs out of `bytes`, a serialised ge.proto.ModelDef (ge_proto.cpp).
void parse(GraphData &graph);

struct NodeData {
    std::string type;
};
class GNode {
  public:
    Status GetType(AscendString &type) const;
    std::shared_ptr<NodeData> data;
};

class Graph {
  public:
    explicit Graph(const char *name);
    Status LoadFromSerializedModelArray(const void *bytes, size_t size);
    Status SaveToFile(const char *path) const;
    Status CopyFrom(const Graph &other);
    std::vector<GNode> GetAllNodes() const;
    std::shared_ptr<GraphData> data;
};

class CompiledGraphSummary {
  public:
    bool IsStatic() const;
    Status GetConstMemorySize(size_t &bytes) const;
    Status GetFeatureMemorySize(size_t &bytes) const;
    Status GetFixedFeatureMemorySize(size_t &bytes) const;
    Status GetFeatureMemoryBaseRefreshable(bool &refreshable) const;
    Status GetOutputShapes(std::vector<Shape> &shapes) const;
    Status GetOutputDtypes(std::vector<DataType> &dtypes) const;
    std::shared_ptr<GraphData> data;
};

class Allocator;

class Session {
  public:
    explicit Session(const StringMap &options);
    ~Session();
    Status AddGraph(uint32_t id, const Graph &graph, const StringMap &options);
    Status RemoveGraph(uint32_t id);
    Status CompileGraph(uint32_t id);
    std::shared_ptr<CompiledGraphSummary> GetCompiledGraphSummary(uint32_t id);
    Status RunGraph(uint32_t id, const std::vector<Tensor> &inputs, std::vector<Tensor> &outputs);
    Status RunGraphWithStreamAsync(uint32_t id, void *stream, const std::vector<Tensor> &inputs, std::vector<Tensor> &outputs);
    Status SetGraphConstMemoryBase(uint32_t id, const void *memory, size_t bytes);
    Status UpdateGraphFeatureMemoryBase(uint32_t id, const void *memory, size_t bytes);
    Status SetGraphFixedFeatureMemoryBase(uint32_t id, const void *memory, size_t bytes);
    Status UpdateGraphRefreshableFeatureMemoryBase(uint32_t id, const void *memory, size_t bytes);
    Status RegisterExternalAllocator(const void *stream, std::shared_ptr<Allocator> allocator) const;

  private:
    uint64_t id_ = 1;
};

struct OperatorData {
    std::string type;
};
class Operator {
  public:
    virtual ~Operator();
    Status GetAllIrAttrNamesAndTypes(StringMap &attributes) const;
    Status UpdateInputDesc(const char *name, const TensorDesc &desc);
    std::shared_ptr<OperatorData> data;
};

class OperatorFactory {
  public:
    static bool IsExistOp(const char *type);
    static Operator CreateOperator(const char *name, const char *type);
};

}  // namespace ge
