// Graph capture and replay (aclmdlRI). A capture records tasks with the addresses they were given
// and does NOT run them; a replay runs them in order on whatever those addresses hold then.
#include "sim.h"

#include <cstdio>

namespace sim {
namespace {

enum CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

CapturedGraph *active = nullptr;  // one capture at a time per process
int active_mode = kGlobal;
thread_local int thread_mode = kGlobal;
uint32_t next_graph_id = 1;

// Python kernels: run the one with this number (0 is failure: what an exception leaves behind);
// forget the one with it.
using ReplayHook = int (*)(long);
using ForgetHook = void (*)(long);
ReplayHook replay_hook = nullptr;
ForgetHook forget_hook = nullptr;

}  // namespace

CapturedGraph *active_capture() { return active; }

bool capture_forbids_waiting() { return active && active_mode != kRelaxed && thread_mode != kRelaxed; }

int submit(Stream *stream, Work work) {
    if (stream->capturing) {
        stream->capturing->tasks.push_back({std::move(work)});
        return kOk;
    }
    if (const int code = count_device("npusim:work")) return code;
    const int code = work();
    occupy(stream, config.task_us);
    return code;
}

}  // namespace sim

using sim::CapturedGraph;
using sim::Stream;

NPUSIM_EXPORT aclError aclmdlRICaptureBegin(Handle handle, int mode) {
    NPUSIM_DEVICE_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    if (sim::active) return sim::kInvalidParam;
    Stream *stream = sim::stream_of(handle);
    sim::active_mode = mode;
    sim::active = new CapturedGraph;
    sim::active->id = sim::next_graph_id++;
    sim::active->origin = stream;
    stream->capturing = sim::active;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclmdlRICaptureGetInfo(Handle handle, int *status, Handle *graph) {
    CapturedGraph *capturing = sim::stream_of(handle)->capturing;
    *status = capturing ? 1 : 0;
    if (graph) *graph = capturing;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclmdlRICaptureEnd(Handle handle, Handle *graph) {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    Stream *stream = sim::stream_of(handle);
    if (!stream->capturing) return sim::kNotInCapture;
    CapturedGraph *captured = sim::active;
    sim::active = nullptr;
    for (Stream *each : sim::all_streams()) each->capturing = nullptr;
    stream->capturing = nullptr;
    NPUSIM_DEVICE_CALL();  // a failing end still ends the capture
    sim::count(captured->tasks.empty() ? "npusim:empty_capture" : "npusim:capture");
    *graph = captured;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclmdlRIGetId(Handle graph, uint32_t *id) { NPUSIM_CALL(); *id = static_cast<CapturedGraph *>(graph)->id; return sim::kOk; }

NPUSIM_EXPORT aclError aclmdlRIExecuteAsync(Handle handle, Handle stream_handle) {
    NPUSIM_DEVICE_CALL();
    auto *graph = static_cast<CapturedGraph *>(handle);
    if (graph->destroyed) return sim::kInvalidParam;
    if (const int code = sim::count_device("npusim:work")) return code;
    Stream *stream = sim::stream_of(stream_handle);
    for (const sim::CapturedTask &task : graph->tasks) {
        if (task.event) {
            sim::record(task.event, stream);
            continue;
        }
        if (const int code = task.work()) return code;
        sim::occupy(stream, sim::config.task_us);
    }
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclmdlRIExecute(Handle graph, int32_t) { return aclmdlRIExecuteAsync(graph, nullptr); }

NPUSIM_EXPORT aclError aclmdlRIDestroy(Handle handle) {
    NPUSIM_CALL();
    auto *graph = static_cast<CapturedGraph *>(handle);
    for (const sim::CapturedTask &task : graph->tasks)
        if (task.hook && sim::forget_hook) sim::forget_hook(task.hook);
    graph->tasks.clear();
    graph->destroyed = true;
    return sim::kOk;
}

NPUSIM_EXPORT aclError aclmdlRIDebugPrint(Handle handle) {
    NPUSIM_CALL();
    const auto *graph = static_cast<CapturedGraph *>(handle);
    fprintf(stderr, "[npusim] graph %u: %zu tasks\n", graph->id, graph->tasks.size());
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclmdlRIDebugJsonPrint(Handle handle, const char *path, uint32_t) {
    NPUSIM_CALL();
    const auto *graph = static_cast<CapturedGraph *>(handle);
    FILE *file = fopen(path, "w");
    if (!file) return sim::kInvalidParam;
    fprintf(file, "{\"graph\":%u,\"tasks\":%zu}\n", graph->id, graph->tasks.size());
    fclose(file);
    return sim::kOk;
}

NPUSIM_EXPORT aclError aclmdlRICaptureThreadExchangeMode(int *mode) { NPUSIM_CALL(); std::swap(*mode, sim::thread_mode); return sim::kOk; }

// ---- accepted without an effect: task groups and their updates
NPUSIM_EXPORT aclError aclmdlRICaptureTaskGrpBegin(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclmdlRICaptureTaskGrpEnd(Handle, Handle *group) { NPUSIM_CALL(); *group = new int(0); return sim::kOk; }
NPUSIM_EXPORT aclError aclmdlRICaptureTaskUpdateBegin(Handle, Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclmdlRICaptureTaskUpdateEnd(Handle) { NPUSIM_CALL(); return sim::kOk; }

// ---- Python kernels (kernels.py)
NPUSIM_EXPORT void npusim_set_hooks(sim::ReplayHook replay, sim::ForgetHook forget) {
    sim::replay_hook = replay;
    sim::forget_hook = forget;
}
NPUSIM_EXPORT int npusim_capturing(Handle stream) { return sim::stream_of(stream)->capturing != nullptr; }
// Puts Python kernel `number` into the capture that runs on the stream.
NPUSIM_EXPORT void npusim_record_kernel(Handle handle, long number) {
    Stream *stream = sim::stream_of(handle);
    sim::Work work = [number]() -> int {
        return sim::replay_hook && sim::replay_hook(number) ? sim::kOk : sim::kModelExecute;
    };
    stream->capturing->tasks.push_back({std::move(work), number});
}
// Accounts for a Python kernel that has just run on the stream.
NPUSIM_EXPORT int npusim_launched(Handle handle) {
    const int code = sim::count_device("npusim:work");
    sim::occupy(sim::stream_of(handle), sim::config.task_us);
    return code;
}
