// Graphs and the session that compiles and runs them. Compiling checks nothing but what a fault
// asks for; running is left to Python (graph_engine.py), on the buffers that torchair prepared.
#include "ge_api.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace sim {

// Runs the graph of this name; returns 0 on failure, which is what a Python exception leaves behind.
using RunHook = int (*)(const char *graph, int inputs, void **input_data);
static RunHook run_hook = nullptr;

static std::map<uint32_t, std::shared_ptr<ge::GraphData>> graphs;
static std::string graphs_text;
static std::vector<std::shared_ptr<ge::GraphData>> received;  // every graph that GE was given, in order

// The run in progress, for the calls that the hook makes.
struct Run {
    const std::vector<ge::Tensor> *inputs;
    std::vector<ge::Tensor> *outputs;
    bool on_device;
};
static Run current{};

// Gives output `index` this shape, and memory unless torchair brought some. An executor for the
// NPU expects device memory, the one for a CPU host memory.
static void *ensure_output(size_t index, const std::vector<int64_t> &dims, int dtype) {
    ge::Tensor &tensor = (*current.outputs)[index];
    tensor.data->desc.data->dtype = dtype;
    tensor.data->desc.data->shape = dims;
    if (tensor.data->bytes) return tensor.data->bytes;
    size_t bytes = element_size(dtype);
    for (const int64_t dim : dims) bytes *= dim;
    void *memory = nullptr;
    if (!current.on_device) {
        memory = calloc(1, std::max<size_t>(bytes, 1));
        tensor.ResetData(static_cast<uint8_t *>(memory), bytes, [](uint8_t *data) { free(data); });
        return memory;
    }
    if (allocate(&memory, bytes)) return nullptr;
    tensor.data->desc.data->placement = 1;
    tensor.ResetData(static_cast<uint8_t *>(memory), bytes, [](uint8_t *data) { release(data); });
    return memory;
}

static ge::Status run(uint32_t id, Stream *stream, const std::vector<ge::Tensor> &inputs, std::vector<ge::Tensor> &outputs, bool on_device) {
    if (const int code = count_device("ge::RunGraph")) return code;
    if (const int code = count_device("npusim:work")) return code;
    const auto graph = graphs[id];
    if (outputs.empty()) outputs.resize(graph->outputs.size());
    current = {&inputs, &outputs, on_device};
    if (run_hook) {
        std::vector<void *> data;
        for (const ge::Tensor &input : inputs) data.push_back(const_cast<uint8_t *>(input.GetData()));
        if (!run_hook(graph->name.c_str(), static_cast<int>(data.size()), data.data())) return kGeFailed;
    }
    occupy(stream, config.task_us * graph->types.size());
    for (size_t i = 0; i < outputs.size() && i < graph->outputs.size(); i++) {
        if (outputs[i].data->bytes) continue;
        std::vector<int64_t> dims = graph->outputs[i].dims;
        for (int64_t &dim : dims) dim = std::max<int64_t>(dim, 1);
        if (!ensure_output(i, dims, graph->outputs[i].dtype)) return kOutOfMemory;
    }
    return kOk;
}

static bool rejected(const std::string &type) {
    return ("," + config.reject + ",").find("," + type + ",") != std::string::npos;
}

}  // namespace sim

namespace ge {

Status GNode::GetType(AscendString &type) const { type = AscendString(data->type.c_str()); return 0; }

Graph::Graph(const char *name) : data(std::make_shared<GraphData>()) { data->name = name ? name : ""; }
Status Graph::LoadFromSerializedModelArray(const void *bytes, size_t size) {
    if (const int code = sim::count("ge::LoadGraph")) return code;
    if (!data) data = std::make_shared<GraphData>();
    data->bytes.assign(static_cast<const char *>(bytes), size);
    parse(*data);
    if (!sim::config.dump_dir.empty()) SaveToFile((sim::config.dump_dir + "/" + data->name + ".pb").c_str());
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::received.push_back(data);
    return 0;
}
Status Graph::SaveToFile(const char *path) const {
    FILE *file = fopen(path, "wb");
    if (!file) return 1;
    const bool written = fwrite(data->bytes.data(), 1, data->bytes.size(), file) == data->bytes.size();
    return fclose(file) || !written;
}
Status Graph::CopyFrom(const Graph &other) { data = std::make_shared<GraphData>(*other.data); return 0; }
std::vector<GNode> Graph::GetAllNodes() const {
    std::vector<GNode> nodes;
    for (const std::string &type : data->types) {
        GNode node;
        node.data = std::make_shared<NodeData>(NodeData{type});
        nodes.push_back(node);
    }
    return nodes;
}

// torchair allocates these and insists on memory, so no size is zero. They say nothing about CANN.
bool CompiledGraphSummary::IsStatic() const { return !data->dynamic; }
Status CompiledGraphSummary::GetConstMemorySize(size_t &bytes) const { bytes = 512; return 0; }
Status CompiledGraphSummary::GetFeatureMemorySize(size_t &bytes) const { bytes = 4096; return 0; }
Status CompiledGraphSummary::GetFixedFeatureMemorySize(size_t &bytes) const { bytes = 512; return 0; }
Status CompiledGraphSummary::GetFeatureMemoryBaseRefreshable(bool &refreshable) const { refreshable = false; return 0; }
Status CompiledGraphSummary::GetOutputShapes(std::vector<Shape> &shapes) const {
    shapes.clear();
    for (const OutputDesc &output : data->outputs) shapes.emplace_back(output.dims);
    return 0;
}
Status CompiledGraphSummary::GetOutputDtypes(std::vector<DataType> &dtypes) const {
    dtypes.clear();
    for (const OutputDesc &output : data->outputs) dtypes.push_back(static_cast<DataType>(output.dtype));
    return 0;
}

Session::Session(const StringMap &) { sim::count("ge::Session"); }
Session::~Session() { sim::count("ge::~Session"); }
Status Session::AddGraph(uint32_t id, const Graph &graph, const StringMap &options) {
    if (const int code = sim::count_device("ge::AddGraph")) return code;
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    for (const auto &option : options) graph.data->options[option.first.GetString()] = option.second.GetString();
    sim::graphs[id] = graph.data;
    return 0;
}
Status Session::RemoveGraph(uint32_t id) {
    sim::count("ge::RemoveGraph");
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::graphs.erase(id);
    return 0;
}
Status Session::CompileGraph(uint32_t id) {
    if (const int code = sim::count_device("ge::CompileGraph")) return code;
    const auto found = sim::graphs.find(id);
    if (found == sim::graphs.end()) {
        sim::set_error("[npusim] no graph " + std::to_string(id) + " was added");
        return sim::kGeFailed;
    }
    for (const std::string &type : found->second->types) {
        if (!sim::rejected(type)) continue;
        sim::set_error("EZ3003: [npusim] No supported Ops kernel and engine are found for [" + type + "]");
        return sim::kGeFailed;
    }
    if (sim::config.compile_ms > 0) usleep(static_cast<useconds_t>(sim::config.compile_ms * 1000));
    return 0;
}
std::shared_ptr<CompiledGraphSummary> Session::GetCompiledGraphSummary(uint32_t id) {
    auto summary = std::make_shared<CompiledGraphSummary>();
    summary->data = sim::graphs[id];
    return summary;
}
Status Session::RunGraph(uint32_t id, const std::vector<Tensor> &inputs, std::vector<Tensor> &outputs) {
    return sim::run(id, sim::stream_of(nullptr), inputs, outputs, false);
}
Status Session::RunGraphWithStreamAsync(uint32_t id, void *stream, const std::vector<Tensor> &inputs, std::vector<Tensor> &outputs) {
    return sim::run(id, sim::stream_of(stream), inputs, outputs, true);
}
Status Session::SetGraphConstMemoryBase(uint32_t, const void *, size_t) { return 0; }
Status Session::UpdateGraphFeatureMemoryBase(uint32_t, const void *, size_t) { return 0; }
Status Session::SetGraphFixedFeatureMemoryBase(uint32_t, const void *, size_t) { return 0; }
Status Session::UpdateGraphRefreshableFeatureMemoryBase(uint32_t, const void *, size_t) { return 0; }
Status Session::RegisterExternalAllocator(const void *, std::shared_ptr<Allocator>) const { return 0; }

Status GEInitialize(const StringMap &) { return sim::count("ge::GEInitialize"); }
Status GEFinalize() { sim::count("ge::GEFinalize"); return 0; }
std::string GEGetErrorMsg() { return sim::last_error(); }
AscendString GEGetWarningMsgV2() { return AscendString(""); }

}  // namespace ge

// ---- for graph_engine.py
NPUSIM_EXPORT void npusim_set_run_hook(sim::RunHook hook) { sim::run_hook = hook; }
// Real shape of an input of the run in progress; returns its rank, -1 when `room` is too small.
NPUSIM_EXPORT int npusim_input_dims(int index, int64_t *dims, int room) {
    const auto &shape = (*sim::current.inputs)[index].data->desc.data->shape;
    if (static_cast<int>(shape.size()) > room) return -1;
    std::copy(shape.begin(), shape.end(), dims);
    return static_cast<int>(shape.size());
}
// Memory for an output of the run in progress, null when there is none.
NPUSIM_EXPORT void *npusim_output(int index, int rank, const int64_t *dims, int dtype) {
    return sim::ensure_output(index, {dims, dims + rank}, dtype);
}
// For every graph that GE was given a line "graph TAB name TAB dynamic|static TAB type type ...",
// and one "option TAB name TAB value" for each of its options.
NPUSIM_EXPORT const char *npusim_graphs() {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::graphs_text.clear();
    for (const auto &graph : sim::received) {
        sim::graphs_text += "graph\t" + graph->name + (graph->dynamic ? "\tdynamic\t" : "\tstatic\t");
        for (const std::string &type : graph->types) sim::graphs_text += type + " ";
        sim::graphs_text += "\n";
        for (const auto &option : graph->options)
            sim::graphs_text += "option\t" + option.first + "\t" + option.second + "\n";
    }
    return sim::graphs_text.c_str();
}
