// Shared declarations of the simulated NPU: a stand-in for the CANN libraries that torch_npu links.
//
// Everything that a device would do runs at once, on host memory, in the calling thread. What is
// simulated is behaviour (addresses, streams, captures, error codes), and a device clock for tests
// of code that measures; speed is not.
//
// The library is compiled with the old std::string layout (_GLIBCXX_USE_CXX11_ABI=0), because CANN
// is, and ge::GEGetErrorMsg hands a std::string across the boundary by value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define NPUSIM_EXPORT extern "C" __attribute__((visibility("default")))

using aclError = int;
using Handle = void *;

namespace sim {

// Error codes, with the meaning that CANN's headers give them.
enum Error : int {
    kOk = 0,
    kInvalidParam = 100000,
    kRepeatedInit = 100002,
    kInvalidDevice = 107001,
    kContextNull = 107002,
    kNotInCapture = 107029,
    kCaptureForbids = 107030,
    kFeatureNotSupported = 207000,
    kOutOfMemory = 207001,
    kModelExecute = 507011,
    kDeviceSetup = 507033,
    kStreamSyncTimeout = 507046,
    kInnerError = 561103,
    kGeFailed = 1343225857,
};

// ---- configuration (control.cpp), set by Python before torch_npu is loaded
struct Config {
    std::string soc = "Ascend910B3";
    std::string cann = "8.5.0";
    int devices = 1;
    size_t memory_bytes = size_t(64) << 30;
    uint32_t cube_cores = 20;
    uint32_t vector_cores = 40;
    double task_us = 0;      // simulated device time of one launched task
    double compile_ms = 0;   // host time of one GE compile
    bool refuse_opaque = false;  // a kernel that computes nothing is an error instead
    std::string dump_dir;    // where to write the graphs that GE receives
    std::string reject;      // comma-separated IR types that the simulated GE does not know
};
extern Config config;
extern std::recursive_mutex mutex;

// ---- counting and fault injection (control.cpp)
// Calls are counted under their own names, and under three names of ours, because torch_npu has
// several ways to do the same: "npusim:allocate" (device memory), "npusim:work" (a kernel, a
// replay or a run of a GE graph), "npusim:opaque" (a kernel that computed nothing).
// Counts a call; returns 0, or the code of a fault that was asked for.
int count(const char *function);
// As `count`, and fails when the simulated device has been lost.
int count_device(const char *function);
void set_error(const std::string &text);
const std::string &last_error();
bool hung();

#define NPUSIM_CALL() do { if (int code_ = ::sim::count(__func__)) return code_; } while (0)
#define NPUSIM_DEVICE_CALL() do { if (int code_ = ::sim::count_device(__func__)) return code_; } while (0)

// ---- streams, events and the device clock (stream.cpp)
struct CapturedGraph;

struct Stream {
    int id = 0;
    CapturedGraph *capturing = nullptr;
    uint64_t busy_until_ns = 0;
};

struct Event {
    uint64_t time_ns = 0;
    bool recorded = false;
    CapturedGraph *captured_in = nullptr;
};

uint64_t now_ns();
Stream *stream_of(Handle handle);  // null means the current device's default stream
const std::vector<Stream *> &all_streams();
// Occupies the stream for `us` microseconds of simulated device time.
void occupy(Stream *stream, double us);
// Waits, as a host does, until the stream is idle; forever once the device hangs.
void wait_for(Stream *stream);
void record(Event *event, Stream *stream);

// ---- capture (capture.cpp)
using Work = std::function<int()>;  // returns 0 or an error code

struct CapturedTask {
    Work work;
    long hook = 0;           // number of the Python kernel behind `work`, 0 for none
    Event *event = nullptr;  // the event to record, instead of work
};

struct CapturedGraph {
    uint32_t id = 0;
    Stream *origin = nullptr;
    std::vector<CapturedTask> tasks;
    bool destroyed = false;
};

CapturedGraph *active_capture();
// Whether this thread may make calls that wait for the device or bypass the stream.
bool capture_forbids_waiting();
// Runs `work` now, or records it when the stream is being captured. A recorded task is not run.
int submit(Stream *stream, Work work);

// ---- memory (memory.cpp)
aclError allocate(void **address, size_t bytes);
aclError release(void *address);

// ---- data types (tensor.cpp): numbers of aclDataType, which ge::DataType shares
size_t element_size(int dtype);

}  // namespace sim
