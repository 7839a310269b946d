// Value classes of ge::.
#include "ge_api.h"

#include <cstring>

namespace ge {

AscendString::AscendString(const char *text) {
    if (text) text_ = std::make_shared<std::string>(text);
}
const char *AscendString::GetString() const { return text_ ? text_->c_str() : ""; }
bool AscendString::operator<(const AscendString &other) const { return strcmp(GetString(), other.GetString()) < 0; }
bool AscendString::operator==(const AscendString &other) const { return !strcmp(GetString(), other.GetString()); }

Shape::Shape(const std::vector<int64_t> &dims) : dims_(std::make_shared<std::vector<int64_t>>(dims)) {}
std::vector<int64_t> Shape::GetDims() const { return dims_ ? *dims_ : std::vector<int64_t>(); }

TensorDesc::TensorDesc() : data(std::make_shared<TensorDescData>()) {}
Shape TensorDesc::GetShape() const { return Shape(data->shape); }
Format TensorDesc::GetFormat() const { return static_cast<Format>(data->format); }
DataType TensorDesc::GetDataType() const { return static_cast<DataType>(data->dtype); }
Placement TensorDesc::GetPlacement() const { return static_cast<Placement>(data->placement); }
void TensorDesc::SetFormat(Format format) { data->format = format; }
void TensorDesc::SetOriginFormat(Format format) { data->origin_format = format; }
void TensorDesc::SetOriginShape(const Shape &shape) { data->origin_shape = shape.GetDims(); }
void TensorDesc::SetDataType(DataType dtype) { data->dtype = dtype; }
void TensorDesc::SetPlacement(Placement placement) { data->placement = placement; }

TensorData::~TensorData() {
    if (bytes && deleter) deleter(bytes);
}

Tensor::Tensor() : data(std::make_shared<TensorData>()) {}
// A deep copy, because torchair copies descriptors about and then changes them.
Status Tensor::SetTensorDesc(const TensorDesc &desc) {
    data->desc.data = std::make_shared<TensorDescData>(*desc.data);
    return 0;
}
TensorDesc Tensor::GetTensorDesc() const { return data->desc; }
Status Tensor::SetDataType(const DataType &dtype) { data->desc.SetDataType(dtype); return 0; }
DataType Tensor::GetDataType() const { return data->desc.GetDataType(); }
Status Tensor::SetFormat(const Format &format) { data->desc.SetFormat(format); return 0; }
Format Tensor::GetFormat() const { return data->desc.GetFormat(); }
Status Tensor::SetPlacement(const Placement &placement) { data->desc.SetPlacement(placement); return 0; }
Placement Tensor::GetPlacement() const { return data->desc.GetPlacement(); }

static Status set_at(std::vector<int64_t> &dims, size_t index, int64_t size) {
    if (index >= dims.size()) return 1;
    dims[index] = size;
    return 0;
}
Status Tensor::SetShapeDimNum(size_t rank) { data->desc.data->shape.resize(rank); return 0; }
size_t Tensor::GetShapeDimNum() const { return data->desc.data->shape.size(); }
Status Tensor::SetShapeDim(size_t index, int64_t size) { return set_at(data->desc.data->shape, index, size); }
int64_t Tensor::GetShapeDim(size_t index) const {
    const auto &dims = data->desc.data->shape;
    return index < dims.size() ? dims[index] : 0;
}
Status Tensor::SetOriginShapeDimNum(size_t rank) { data->desc.data->origin_shape.resize(rank); return 0; }
size_t Tensor::GetOriginShapeDimNum() const { return data->desc.data->origin_shape.size(); }
Status Tensor::SetOriginShapeDim(size_t index, int64_t size) { return set_at(data->desc.data->origin_shape, index, size); }

Status Tensor::SetData(uint8_t *bytes, size_t size, const Deleter &deleter) { return ResetData(bytes, size, deleter); }
Status Tensor::ResetData(uint8_t *bytes, size_t, const Deleter &deleter) {
    if (data->bytes && data->deleter) data->deleter(data->bytes);
    data->bytes = bytes;
    data->deleter = deleter;
    return 0;
}
std::unique_ptr<uint8_t[], Deleter> Tensor::ResetData() {
    uint8_t *bytes = data->bytes;
    data->bytes = nullptr;
    const Deleter nothing = [](uint8_t *) {};
    return {bytes, data->deleter ? data->deleter : nothing};
}
const uint8_t *Tensor::GetData() const { return data->bytes; }
uint8_t *Tensor::GetData() { return data->bytes; }

const char *GetFormatName(Format) { return "ND"; }

}  // namespace ge
