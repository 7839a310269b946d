// Device memory: host memory that the kernel commits only when it is touched, so that a device of
// 64 GiB fits a laptop as long as nobody fills it.
#include "sim.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unordered_map>

namespace sim {
int device_index();
}

namespace {

struct Block {
    size_t bytes;
    int device;
};

std::unordered_map<void *, Block> blocks;
// Address ranges that were given back, by size. They stay mapped (and read as zero), so that a
// replay over freed memory gives wrong numbers, as on a device, and not a segmentation fault.
std::unordered_map<size_t, std::vector<void *>> spare;
std::unordered_map<void *, size_t> reservations;
std::map<int, size_t> used;
std::map<int, size_t> peak;

struct Physical {
    size_t bytes;
    int device;
};

void *map_range(size_t bytes, int protection) {
    void *address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? nullptr : address;
}

aclError take(size_t bytes) {
    if (const int code = sim::count_device("npusim:allocate")) return code;
    const int device = sim::device_index();
    if (used[device] + bytes > sim::config.memory_bytes) {
        sim::set_error("[npusim] out of memory: " + std::to_string(bytes) + " bytes asked for, "
            + std::to_string(used[device]) + " of " + std::to_string(sim::config.memory_bytes) + " in use");
        return sim::kOutOfMemory;
    }
    used[device] += bytes;
    peak[device] = std::max(peak[device], used[device]);
    return sim::kOk;
}

void *host_allocate(size_t bytes) {
    constexpr size_t kAlign = 64;
    return aligned_alloc(kAlign, (bytes / kAlign + 1) * kAlign);
}

}  // namespace

namespace sim {

aclError allocate(void **address, size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    bytes = std::max<size_t>(bytes, 1);
    if (const aclError code = take(bytes)) return code;
    std::vector<void *> &ready = spare[bytes];
    if (!ready.empty()) {
        *address = ready.back();
        ready.pop_back();
    } else if (!(*address = map_range(bytes, PROT_READ | PROT_WRITE))) {
        used[device_index()] -= bytes;
        set_error("[npusim] the host has no address range of " + std::to_string(bytes) + " bytes left");
        return kOutOfMemory;
    }
    blocks[*address] = {bytes, device_index()};
    return kOk;
}

aclError release(void *address) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    const auto found = blocks.find(address);
    if (found == blocks.end()) return kInvalidParam;
    madvise(address, found->second.bytes, MADV_DONTNEED);
    spare[found->second.bytes].push_back(address);
    used[found->second.device] -= found->second.bytes;
    blocks.erase(found);
    return kOk;
}

}  // namespace sim

NPUSIM_EXPORT size_t npusim_used_bytes(int device) { std::lock_guard<std::recursive_mutex> guard(sim::mutex); return used[device]; }
NPUSIM_EXPORT size_t npusim_peak_bytes(int device) { std::lock_guard<std::recursive_mutex> guard(sim::mutex); return peak[device]; }

NPUSIM_EXPORT aclError aclrtMalloc(void **address, size_t bytes, int) { NPUSIM_DEVICE_CALL(); return sim::allocate(address, bytes); }
NPUSIM_EXPORT aclError aclrtMallocAlign32(void **address, size_t bytes, int) { NPUSIM_DEVICE_CALL(); return sim::allocate(address, bytes); }
NPUSIM_EXPORT aclError aclrtFree(void *address) { NPUSIM_CALL(); return sim::release(address); }

NPUSIM_EXPORT aclError aclrtMallocHost(void **address, size_t bytes) {
    NPUSIM_CALL();
    *address = host_allocate(bytes);
    return *address ? sim::kOk : sim::kOutOfMemory;
}
NPUSIM_EXPORT aclError aclrtMallocHostWithCfg(void **address, size_t bytes, Handle) { return aclrtMallocHost(address, bytes); }
NPUSIM_EXPORT aclError aclrtFreeHost(void *address) { NPUSIM_CALL(); free(address); return sim::kOk; }

NPUSIM_EXPORT aclError aclrtGetMemInfo(int, size_t *free_bytes, size_t *total) {
    NPUSIM_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    *total = sim::config.memory_bytes;
    *free_bytes = sim::config.memory_bytes - used[sim::device_index()];
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtPointerGetAttributes(const void *, Handle) { NPUSIM_CALL(); return sim::kFeatureNotSupported; }

// ---- virtual memory, used by expandable segments: an address range first, memory for it later
NPUSIM_EXPORT aclError aclrtReserveMemAddress(void **address, size_t bytes, size_t, Handle, uint64_t) {
    NPUSIM_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    *address = map_range(bytes, PROT_NONE);
    if (!*address) return sim::kOutOfMemory;
    reservations[*address] = bytes;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtReleaseMemAddress(void *address) {
    NPUSIM_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    const auto found = reservations.find(address);
    if (found == reservations.end()) return sim::kInvalidParam;
    munmap(address, found->second);
    reservations.erase(found);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtMallocPhysical(Handle *handle, size_t bytes, const void *, uint64_t) {
    NPUSIM_DEVICE_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    if (const aclError code = take(bytes)) return code;
    *handle = new Physical{bytes, sim::device_index()};
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtFreePhysical(Handle handle) {
    NPUSIM_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    auto *physical = static_cast<Physical *>(handle);
    used[physical->device] -= physical->bytes;
    delete physical;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtMapMem(void *address, size_t bytes, size_t, Handle, uint64_t) {
    NPUSIM_CALL();
    return mprotect(address, bytes, PROT_READ | PROT_WRITE) ? sim::kInvalidParam : sim::kOk;
}
NPUSIM_EXPORT aclError aclrtUnmapMem(void *) { NPUSIM_CALL(); return sim::kOk; }

// ---- copies and fills. Those that bypass the stream are unsafe while a capture runs.
static bool refused_by_capture() {
    if (!sim::capture_forbids_waiting()) return false;
    sim::set_error("[npusim] a synchronous copy or fill was called while a graph is being captured");
    return true;
}
NPUSIM_EXPORT aclError aclrtMemcpy(void *to, size_t size, const void *from, size_t bytes, int) {
    NPUSIM_DEVICE_CALL();
    if (refused_by_capture()) return sim::kCaptureForbids;
    if (bytes > size) return sim::kInvalidParam;
    memmove(to, from, bytes);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtMemcpyAsync(void *to, size_t size, const void *from, size_t bytes, int, Handle stream) {
    NPUSIM_DEVICE_CALL();
    if (bytes > size) return sim::kInvalidParam;
    return sim::submit(sim::stream_of(stream), [=] { memmove(to, from, bytes); return 0; });
}
NPUSIM_EXPORT aclError aclrtMemset(void *to, size_t size, int32_t value, size_t bytes) {
    NPUSIM_DEVICE_CALL();
    if (refused_by_capture()) return sim::kCaptureForbids;
    if (bytes > size) return sim::kInvalidParam;
    memset(to, value, bytes);
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtMemsetAsync(void *to, size_t size, int32_t value, size_t bytes, Handle stream) {
    NPUSIM_DEVICE_CALL();
    if (bytes > size) return sim::kInvalidParam;
    return sim::submit(sim::stream_of(stream), [=] { memset(to, value, bytes); return 0; });
}
