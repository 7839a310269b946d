// Devices, contexts, versions and the settings that are only stored.
#include "sim.h"

#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace {

constexpr int kMaxDevices = 16;

struct Context {
    int device = 0;
};

thread_local int current_device = -1;
Context contexts[kMaxDevices];
bool initialised = false;
std::map<int, int64_t> system_parameters;
// torch_npu asks for option 10 (ACL_OP_JIT_COMPILE) first and insists on an answer.
std::map<int, std::string> compile_options = {{10, "disable"}};
uint32_t core_limits[2];

uint32_t core_limit(int type) {
    const uint32_t all = type == 0 ? sim::config.cube_cores : sim::config.vector_cores;
    const uint32_t limit = core_limits[type & 1];
    return limit ? limit : all;
}

}  // namespace

namespace sim {
int device_index() { return current_device < 0 ? 0 : current_device; }
}  // namespace sim

NPUSIM_EXPORT aclError aclInit(const char *) {
    NPUSIM_CALL();
    if (initialised) return sim::kRepeatedInit;
    initialised = true;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclFinalize() { NPUSIM_CALL(); initialised = false; return sim::kOk; }

NPUSIM_EXPORT const char *aclGetRecentErrMsg() { return sim::last_error().c_str(); }
NPUSIM_EXPORT aclError aclrtGetLastError(int) { return sim::kOk; }
NPUSIM_EXPORT aclError aclrtPeekAtLastError(int) { return sim::kOk; }

NPUSIM_EXPORT const char *aclrtGetSocName() { return sim::config.soc.c_str(); }

// The answer is char version[128], then major, minor, release, patch of 64 characters each, then
// 128 reserved bytes.
NPUSIM_EXPORT aclError aclsysGetCANNVersion(int, char *out) {
    NPUSIM_CALL();
    constexpr size_t kVersion = 128, kPart = 64, kReserved = 128;
    memset(out, 0, kVersion + 4 * kPart + kReserved);
    snprintf(out, kVersion, "%s", sim::config.cann.c_str());
    int parts[3] = {0, 0, 0};
    sscanf(out, "%d.%d.%d", &parts[0], &parts[1], &parts[2]);
    for (size_t i = 0; i < 3; i++) snprintf(out + kVersion + i * kPart, kPart, "%d", parts[i]);
    return sim::kOk;
}

NPUSIM_EXPORT aclError aclrtGetDeviceCount(uint32_t *count) {
    NPUSIM_CALL();
    *count = sim::config.devices;
    return sim::config.devices ? sim::kOk : sim::kDeviceSetup;
}
NPUSIM_EXPORT aclError aclrtSetDevice(int32_t device) {
    NPUSIM_CALL();
    if (device < 0 || device >= sim::config.devices || device >= kMaxDevices) return sim::kInvalidDevice;
    current_device = device;
    contexts[device].device = device;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtGetDevice(int32_t *device) {
    NPUSIM_CALL();
    if (current_device < 0) return sim::kContextNull;
    *device = current_device;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtResetDevice(int32_t) { NPUSIM_CALL(); current_device = -1; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtGetCurrentContext(Handle *context) {
    NPUSIM_CALL();
    if (current_device < 0) return sim::kContextNull;
    *context = &contexts[current_device];
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtSetCurrentContext(Handle context) {
    NPUSIM_CALL();
    current_device = context ? static_cast<Context *>(context)->device : -1;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtGetPrimaryCtxState(int32_t, uint32_t *flags, int32_t *active) {
    NPUSIM_CALL();
    if (flags) *flags = 0;
    if (active) *active = current_device >= 0;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t, int32_t) { NPUSIM_CALL(); *can = 1; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtDeviceEnablePeerAccess(int32_t, uint32_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtDeviceGetBareTgid(int32_t *pid) { NPUSIM_CALL(); *pid = getpid(); return sim::kOk; }

NPUSIM_EXPORT aclError aclGetDeviceCapability(uint32_t, int what, int64_t *value) {
    NPUSIM_CALL();
    *value = what == 0 ? sim::config.cube_cores : what == 1 ? sim::config.vector_cores : 0;
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclrtGetDeviceInfo(uint32_t, int attribute, int64_t *value) {
    NPUSIM_CALL();
    switch (attribute) {  // aclrtDevAttr
        case 101: case 102: *value = sim::config.cube_cores; break;
        case 201: *value = sim::config.vector_cores; break;
        case 301: *value = static_cast<int64_t>(sim::config.memory_bytes); break;
        default: *value = 1;
    }
    return sim::kOk;
}

// ---- settings without an effect here
NPUSIM_EXPORT aclError aclrtSetDeviceSatMode(int) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetOpExecuteTimeOut(uint32_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetOpWaitTimeout(uint32_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclopSetCompileFlag(int) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclmdlInitDump() { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclmdlSetDump(const char *) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclmdlFinalizeDump() { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT int HcclSetConfig(int, int64_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT int rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length) { *address = 0; *length = 0; return sim::kOk; }
NPUSIM_EXPORT uint64_t MsprofSysCycleTime() { return sim::now_ns(); }
NPUSIM_EXPORT uint64_t MsprofGetHashId(const char *text, size_t length) {
    return std::hash<std::string>()(std::string(text, length));
}

// ---- settings that torch_npu reads back and compares (the deterministic level among them)
NPUSIM_EXPORT aclError aclrtSetSysParamOpt(int option, int64_t value) { NPUSIM_CALL(); system_parameters[option] = value; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtCtxSetSysParamOpt(int option, int64_t value) { NPUSIM_CALL(); system_parameters[option] = value; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtGetSysParamOpt(int option, int64_t *value) { NPUSIM_CALL(); *value = system_parameters[option]; return sim::kOk; }

NPUSIM_EXPORT size_t aclGetCompileoptSize(int option) {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    const auto found = compile_options.find(option);
    return found == compile_options.end() ? 0 : found->second.size() + 1;
}
NPUSIM_EXPORT aclError aclGetCompileopt(int option, char *value, size_t size) {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    if (!size) return sim::kInvalidParam;
    snprintf(value, size, "%s", compile_options[option].c_str());
    return sim::kOk;
}
NPUSIM_EXPORT aclError aclSetCompileopt(int option, const char *value) {
    NPUSIM_CALL();
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    compile_options[option] = value ? value : "";
    return sim::kOk;
}

// ---- core limits: type 0 is cube cores, 1 vector cores
NPUSIM_EXPORT aclError aclrtGetDeviceResLimit(int32_t, int type, uint32_t *value) { NPUSIM_CALL(); *value = core_limit(type); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetDeviceResLimit(int32_t, int type, uint32_t value) { NPUSIM_CALL(); core_limits[type & 1] = value; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtResetDeviceResLimit(int32_t) { NPUSIM_CALL(); core_limits[0] = core_limits[1] = 0; return sim::kOk; }
NPUSIM_EXPORT aclError aclrtGetStreamResLimit(Handle, int type, uint32_t *value) { NPUSIM_CALL(); *value = core_limit(type); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtSetStreamResLimit(Handle, int, uint32_t) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtResetStreamResLimit(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtUseStreamResInCurrentThread(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtUnuseStreamResInCurrentThread(Handle) { NPUSIM_CALL(); return sim::kOk; }
NPUSIM_EXPORT aclError aclrtGetResInCurrentThread(int type, uint32_t *value) { NPUSIM_CALL(); *value = core_limit(type); return sim::kOk; }
