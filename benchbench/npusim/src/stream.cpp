// Streams, events and the simulated device clock.
//
// Work runs when it is launched. A stream only remembers until when it would be busy if each task
// took the configured time; waiting for it sleeps until then. So a host that measures sees a queue
// that lags behind, without the device's arithmetic being timed at all.
#include "sim.h"

#include <ctime>

namespace sim {

int device_index();

namespace {

std::vector<Stream *> streams;
std::map<int, Stream *> default_streams;
int next_stream_id = 1;

void sleep_until(uint64_t time_ns) {
    for (uint64_t now = now_ns(); now < time_ns; now = now_ns()) {
        const uint64_t left = time_ns - now;
        const timespec pause{static_cast<time_t>(left / 1000000000), static_cast<long>(left % 1000000000)};
        nanosleep(&pause, nullptr);
    }
}

void sleep_forever() {
    const timespec hour{3600, 0};
    for (;;) nanosleep(&hour, nullptr);
}

}  // namespace

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

Stream *stream_of(Handle handle) {
    if (handle) return static_cast<Stream *>(handle);
    std::lock_guard<std::recursive_mutex> guard(mutex);
    Stream *&stream = default_streams[device_index()];
    if (!stream) streams.push_back(stream = new Stream);
    return stream;
}

const std::vector<Stream *> &all_streams() { return streams; }

void occupy(Stream *stream, double us) {
    if (us <= 0) return;
    stream->busy_until_ns = std::max(stream->busy_until_ns, now_ns()) + static_cast<uint64_t>(us * 1000);
}

void wait_for(Stream *stream) {
    if (hung()) sleep_forever();
    sleep_until(stream->busy_until_ns);
}

void record(Event *event, Stream *stream) {
    event->time_ns = std::max(stream->busy_until_ns, now_ns());
    event->recorded = true;
}

}  // namespace sim

using sim::Event;
using sim::Stream;

NPUSIM_EXPORT aclError aclrtCreateStreamWithConfig(Handle *handle, uint32_t, uint32_t) {
    NPUSIM_DEVICE_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    auto *stream = new Stream;
    stream->id = sim::next_stream_id++;
    sim::streams.push_back(stream);
    *handle = stream;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtCreateStream(Handle *handle) { return aclrtCreateStreamWithConfig(handle, 0, 0); }
// Handles stay valid: a captured task may still name the stream.
NPUSIM_EXPORT aclError aclrtDestroyStream(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtDestroyStreamForce(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtStreamGetId(Handle handle, int32_t *id) { NPUSIM_CALL(); *id = sim::stream_of(handle)->id; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetStreamAttribute(Handle, int, Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetStreamFailureMode(Handle, uint64_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetStreamOverflowSwitch(Handle, uint32_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtGetStreamOverflowSwitch(Handle, uint32_t *flag) { NPUSIM_CALL(); *flag = 0; return sim::kOk; }

// A stream that is being captured cannot be waited for: nothing on it runs. This is how .item(),
// .cpu() and synchronize() inside a capture are refused.
NPUSIM_EXPORT aclError aclrtSynchronizeStream(Handle handle) {
    NPUSIM_DEVICE_CALL();
    Stream *stream = sim::stream_of(handle);
    if (stream->capturing) {
        sim::set_error("[npusim] a stream that is being captured was waited for (.item(), .cpu() or synchronize())");
        return sim::kCaptureForbids;
    }
    sim::wait_for(stream);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtSynchronizeStreamWithTimeout(Handle handle, int32_t timeout_ms) {
    if (timeout_ms > 0 && sim::hung()) {
        sim::sleep_until(sim::now_ns() + static_cast<uint64_t>(timeout_ms) * 1000000);
        return sim::kStreamSyncTimeout;
    }
    return aclrtSynchronizeStream(handle);
}
NPUSIM_EXPORT aclError aclrtSynchronizeDevice() {
    NPUSIM_DEVICE_CALL();
    for (Stream *stream : std::vector<Stream *>(sim::all_streams())) sim::wait_for(stream);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return aclrtSynchronizeDevice(); }

// aclrtStreamStatus: 0 is complete, 1 is not ready.
NPUSIM_EXPORT aclError aclrtStreamQuery(Handle handle, int *status) {
    NPUSIM_CALL();
    *status = sim::hung() || sim::stream_of(handle)->busy_until_ns > sim::now_ns();
    return sim::kOk;
}

// A stream that waits for an event of a capture joins that capture.
NPUSIM_EXPORT aclError aclrtStreamWaitEvent(Handle handle, Handle event_handle) {
    NPUSIM_DEVICE_CALL();
    Stream *stream = sim::stream_of(handle);
    const auto *event = static_cast<Event *>(event_handle);
    stream->busy_until_ns = std::max(stream->busy_until_ns, event->time_ns);
    if (event->captured_in && event->captured_in == sim::active_capture()) stream->capturing = event->captured_in;
    return sim::kOk;
}

// ---- events
NPUSIM_EXPORT aclError aclrtCreateEventWithFlag(Handle *handle, uint32_t) { NPUSIM_DEVICE_CALL(); *handle = new Event; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtCreateEventExWithFlag(Handle *handle, uint32_t flag) { return aclrtCreateEventWithFlag(handle, flag); }
NPUSIM_EXPORT aclError aclrtCreateEvent(Handle *handle) { return aclrtCreateEventWithFlag(handle, 0); }
// Events are never freed: a captured graph may record into one after its owner let go of it.
NPUSIM_EXPORT aclError aclrtDestroyEvent(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtRecordEvent(Handle handle, Handle stream_handle) {
    NPUSIM_DEVICE_CALL();
    auto *event = static_cast<Event *>(handle);
    Stream *stream = sim::stream_of(stream_handle);
    sim::record(event, stream);
    event->captured_in = stream->capturing;
    if (stream->capturing) stream->capturing->tasks.push_back({nullptr, 0, event});
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtResetEvent(Handle handle, Handle) { NPUSIM_CALL(); static_cast<Event *>(handle)->recorded = false; return sim::kOk; }

// aclrtEventRecordedStatus: 1 is complete. aclrtEventWaitStatus: 0 is complete.
NPUSIM_EXPORT aclError aclrtQueryEventStatus(Handle handle, int *status) {
    NPUSIM_CALL();
    *status = !sim::hung() && static_cast<Event *>(handle)->time_ns <= sim::now_ns();
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtQueryEventWaitStatus(Handle handle, int *status) {
    const aclError code = aclrtQueryEventStatus(handle, status);
    *status = !*status;
    return code;
}
NPUSIM_EXPORT aclError aclrtSynchronizeEvent(Handle handle) {
    NPUSIM_DEVICE_CALL();
    if (sim::hung()) sim::sleep_forever();
    sim::sleep_until(static_cast<Event *>(handle)->time_ns);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtEventElapsedTime(float *ms, Handle start, Handle end) {
    NPUSIM_DEVICE_CALL();
    const auto *first = static_cast<Event *>(start);
    const auto *last = static_cast<Event *>(end);
    if (!first->recorded || !last->recorded) return sim::kInvalidParam;
    *ms = static_cast<float>((static_cast<double>(last->time_ns) - static_cast<double>(first->time_ns)) / 1e6);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtEventGetTimestamp(Handle handle, uint64_t *us) { NPUSIM_CALL(); *us = static_cast<Event *>(handle)->time_ns / 1000; return sim::kOk; }

// ---- host callbacks run at once, like everything else
NPUSIM_EXPORT aclError aclrtSubscribeReport(uint64_t, Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtUnSubscribeReport(uint64_t, Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtProcessReport(int32_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtLaunchCallback(void (*callback)(void *), void *data, int, Handle) { NPUSIM_CALL(); callback(data); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtLaunchHostFunc(Handle, void (*callback)(void *), void *data) { NPUSIM_CALL(); callback(data); return sim::kOk; }
