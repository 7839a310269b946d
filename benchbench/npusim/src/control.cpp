// What Python controls: configuration, call counters, injected faults. See simulator.py.
#include "sim.h"

#include <cstdlib>
#include <cstring>

namespace sim {

Config config;
std::recursive_mutex mutex;

namespace {

enum FaultKind : int {
    kOnce = 0,      // the n-th call fails
    kSticky = 1,    // the n-th call and all later ones fail
    kLost = 2,      // from the n-th call on every call that needs the device fails
    kHang = 3,      // the n-th call succeeds, and the device never finishes its work
};

struct Fault {
    std::string function;
    long nth;
    int code;
    FaultKind kind;
    std::string text;
};

std::vector<Fault> faults;
std::map<std::string, long> counters;
std::string error_text;
std::string answer;  // keeps the text that the last control call returned
int lost_code = 0;
bool is_hung = false;

int injected(const char *function, long nth) {
    for (const Fault &fault : faults) {
        const bool due = fault.kind == kSticky ? nth >= fault.nth : nth == fault.nth;
        if (!due || fault.function != function) continue;
        if (fault.kind == kHang) {
            is_hung = true;
            continue;
        }
        if (fault.kind == kLost) lost_code = fault.code;
        error_text = fault.text.empty()
            ? "[npusim] injected fault " + std::to_string(fault.code) + " in " + function
            : fault.text;
        return fault.code;
    }
    return 0;
}

}  // namespace

int count(const char *function) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return injected(function, ++counters[function]);
}

int count_device(const char *function) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (const int code = count(function)) return code;
    return lost_code;
}

void set_error(const std::string &text) { error_text = text; }
const std::string &last_error() { return error_text; }
bool hung() { return is_hung; }

}  // namespace sim

NPUSIM_EXPORT int npusim_configure(const char *key, const char *value) {
    using sim::config;
    const std::string name = key;
    if (name == "soc") config.soc = value;
    else if (name == "cann") config.cann = value;
    else if (name == "devices") config.devices = std::atoi(value);
    else if (name == "memory_bytes") config.memory_bytes = std::strtoull(value, nullptr, 10);
    else if (name == "cube_cores") config.cube_cores = std::atoi(value);
    else if (name == "vector_cores") config.vector_cores = std::atoi(value);
    else if (name == "task_us") config.task_us = std::atof(value);
    else if (name == "compile_ms") config.compile_ms = std::atof(value);
    else if (name == "refuse_opaque") config.refuse_opaque = std::atoi(value) != 0;
    else if (name == "dump_dir") config.dump_dir = value;
    else if (name == "reject") config.reject = value;
    else return 1;
    return 0;
}

NPUSIM_EXPORT void npusim_add_fault(const char *function, long nth, int code, int kind, const char *text) {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::faults.push_back({function, nth, code, static_cast<sim::FaultKind>(kind), text});
}

// A lost or hung device stays as it is.
NPUSIM_EXPORT void npusim_clear_faults() {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::faults.clear();
}

// Lines "name count" of every simulated function called since the last reset.
NPUSIM_EXPORT const char *npusim_calls() {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::answer.clear();
    for (const auto &entry : sim::counters)
        if (entry.second) sim::answer += entry.first + " " + std::to_string(entry.second) + "\n";
    return sim::answer.c_str();
}

// Faults count from the last reset, too.
NPUSIM_EXPORT void npusim_reset_calls() {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::counters.clear();
}

// Lets a Python kernel that fails say why.
NPUSIM_EXPORT void npusim_set_error(const char *text) {
    std::lock_guard<std::recursive_mutex> guard(sim::mutex);
    sim::set_error(text);
}
