/* libnvidia-ml as far as the agent uses it, for machines without GPUs.
 *
 * Everything that it says is in one file, mapped by it and by the test that writes it (shim.py has the same structs); so a
 * test changes the machine while others look at it. pynvml finds this in the driver's place by LD_LIBRARY_PATH.
 * With OLD_DRIVER the functions that a driver of 2020 did not have are missing.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 16, INSTANCES = 8, LINKS = 36, PROCESSES = 32, FUNCTIONS = 48, EVENTS = 64, CPU_WORDS = 16, TEXT = 96, ADDRESS = 32 };

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25
};

struct function { char name[56]; uint64_t calls; uint32_t gpus, delay_ms, hangs; int32_t code; };
struct event { uint64_t type, data; uint32_t gpu, unused; };
struct link { uint32_t active, type; char pci[ADDRESS]; };
struct process { uint64_t used; uint32_t pid, unused; };

/* A GPU or a MIG instance. Numbers below zero: not supported. */
struct device {
    char uuid[TEXT], name[TEXT], pci[ADDRESS];
    uint64_t total, used, wave_us, wave_low, wave_high, events, cpus[CPU_WORDS];
    int64_t minor, utilisation, recovery, remap_pending, remap_failed, uncorrectable;
    int64_t mig, instances, links, processes;
    int64_t fabric_state, clique;
    uint8_t fabric[16];
    uint64_t lost;
    int64_t power_mw; /* below zero: not supported */
    uint64_t power_us;
    struct link link[LINKS];
    struct process process[PROCESSES];
};

struct state {
    uint64_t size, gpus, written;
    char driver[TEXT], nvml[TEXT];
    int64_t level[GPUS][GPUS];
    struct function function[FUNCTIONS];
    struct event event[EVENTS];
    struct device device[GPUS], instance[GPUS][INSTANCES];
};

static struct state *state;

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("EBB_NVML_SHIM");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED || state->size != sizeof *state) {
        fprintf(stderr, "EBB_NVML_SHIM: no state file of %zu bytes\n", sizeof *state);
        abort();
    }
    close(file);
}

static int gpu_of(const struct device *device)
{
    if (device >= state->device && device < state->device + GPUS)
        return device - state->device;
    return (device - &state->instance[0][0]) / INSTANCES;
}

static void pause_ms(unsigned ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* What every function does first: it counts, and fails, waits or hangs as the test said. */
static int enter(struct function **found, const char *name, const struct device *device)
{
    for (struct function *f = state->function; !*found && f < state->function + FUNCTIONS; f++)
        if (!strcmp(f->name, name))
            *found = f;
    struct function *function = *found;
    __atomic_fetch_add(&function->calls, 1, __ATOMIC_RELAXED);
    if (!device || function->gpus >> gpu_of(device) & 1) {
        pause_ms(function->delay_ms);
        while (__atomic_load_n(&function->hangs, __ATOMIC_RELAXED))
            pause_ms(10);
        if (function->code)
            return function->code;
    }
    return device && state->device[gpu_of(device)].lost ? GPU_IS_LOST : SUCCESS;
}

#define API(name, ...) int name(__VA_ARGS__)
#define ENTER(device)                                           \
    do {                                                        \
        static struct function *function;                       \
        int code = enter(&function, __func__, device);          \
        if (code)                                               \
            return code;                                        \
    } while (0)

static int number(int64_t value, unsigned *answer)
{
    *answer = value;
    return value < 0 ? NOT_SUPPORTED : SUCCESS;
}

static int text(const char *value, char *answer, unsigned size)
{
    return snprintf(answer, size, "%s", value) < (int)size ? SUCCESS : INSUFFICIENT_SIZE;
}

const char *nvmlErrorString(int code)
{
    static char words[32];
    snprintf(words, sizeof words, "error %d", code);
    return words;
}

API(nvmlInitWithFlags, unsigned flags) { (void)flags; ENTER(NULL); return SUCCESS; }
API(nvmlShutdown, void) { ENTER(NULL); return SUCCESS; }
API(nvmlSystemGetDriverVersion, char *answer, unsigned size) { ENTER(NULL); return text(state->driver, answer, size); }
API(nvmlSystemGetNVMLVersion, char *answer, unsigned size) { ENTER(NULL); return text(state->nvml, answer, size); }
API(nvmlDeviceGetCount_v2, unsigned *answer) { ENTER(NULL); return number(state->gpus, answer); }

API(nvmlDeviceGetHandleByIndex_v2, unsigned index, struct device **answer)
{
    if (index >= state->gpus)
        return INVALID_ARGUMENT;
    *answer = &state->device[index];
    ENTER(*answer);
    return SUCCESS;
}

API(nvmlDeviceGetUUID, struct device *d, char *answer, unsigned size) { ENTER(d); return text(d->uuid, answer, size); }
API(nvmlDeviceGetName, struct device *d, char *answer, unsigned size) { ENTER(d); return text(d->name, answer, size); }
API(nvmlDeviceGetMinorNumber, struct device *d, unsigned *answer) { ENTER(d); return number(d->minor, answer); }

struct pci { char old_address[16]; unsigned domain, bus, device, id, subsystem; char address[ADDRESS]; };

API(nvmlDeviceGetPciInfo_v3, struct device *d, struct pci *answer)
{
    ENTER(d);
    memset(answer, 0, sizeof *answer);
    return text(d->pci, answer->address, sizeof answer->address);
}

static uint64_t used(const struct device *d)
{
    struct timespec now;
    if (!d->wave_us)
        return d->used;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t into = (now.tv_sec * 1000000ULL + now.tv_nsec / 1000) % d->wave_us;
    return d->wave_low + (d->wave_high - d->wave_low) * into / d->wave_us; /* climbs through the period, then falls at once */
}

struct memory { uint64_t total, free, used; };

API(nvmlDeviceGetMemoryInfo, struct device *d, struct memory *answer)
{
    ENTER(d);
    *answer = (struct memory){d->total, d->total - used(d), used(d)};
    return SUCCESS;
}

struct utilisation { unsigned gpu, memory; };

API(nvmlDeviceGetUtilizationRates, struct device *d, struct utilisation *answer)
{
    ENTER(d);
    answer->memory = 0;
    return number(d->utilisation, &answer->gpu);
}

API(nvmlDeviceGetTopologyCommonAncestor, struct device *a, struct device *b, unsigned *answer)
{
    ENTER(a);
    return number(state->level[gpu_of(a)][gpu_of(b)], answer);
}

static int link_of(struct device *d, unsigned link)
{
    return d->links <= 0 ? NOT_SUPPORTED : link >= d->links ? INVALID_ARGUMENT : SUCCESS;
}

API(nvmlDeviceGetNvLinkState, struct device *d, unsigned link, unsigned *answer)
{
    ENTER(d);
    *answer = d->link[link % LINKS].active;
    return link_of(d, link);
}

API(nvmlDeviceGetNvLinkRemotePciInfo_v2, struct device *d, unsigned link, struct pci *answer)
{
    ENTER(d);
    memset(answer, 0, sizeof *answer);
    text(d->link[link % LINKS].pci, answer->address, sizeof answer->address);
    return link_of(d, link);
}

API(nvmlDeviceGetMigMode, struct device *d, unsigned *current, unsigned *pending)
{
    ENTER(d);
    *pending = d->mig;
    return number(d->mig, current);
}

API(nvmlDeviceGetMaxMigDeviceCount, struct device *d, unsigned *answer) { ENTER(d); return number(INSTANCES, answer); }

API(nvmlDeviceGetMigDeviceHandleByIndex, struct device *d, unsigned index, struct device **answer)
{
    ENTER(d);
    *answer = &state->instance[gpu_of(d)][index % INSTANCES];
    return index < d->instances ? SUCCESS : NOT_FOUND;
}

struct process_info { unsigned pid; uint64_t used; unsigned instance, compute_instance; };

static int processes(struct device *d, unsigned *count, struct process_info *answer)
{
    unsigned room = *count;
    *count = d->processes;
    if (room < d->processes)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        answer[i] = (struct process_info){d->process[i].pid, d->process[i].used, -1, -1};
    return SUCCESS;
}

API(nvmlDeviceGetComputeRunningProcesses_v2, struct device *d, unsigned *count, struct process_info *answer)
{
    ENTER(d);
    return processes(d, count, answer);
}

struct field { unsigned id, scope; int64_t time, latency; unsigned type; int code; uint64_t value; };
enum { POWER_INSTANT = 186, RECOVERY_ACTION = 230 };

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

/* All of it through the first three fifths of each period, and two fifths of it through the rest; measured ten times a second. */
static int power(const struct device *d, unsigned *answer)
{
    uint64_t us = now_us() / 100000 * 100000;
    int low = d->power_us && us % d->power_us * 5 >= d->power_us * 3;
    return number(low ? d->power_mw * 2 / 5 : d->power_mw, answer);
}

API(nvmlDeviceGetTotalEnergyConsumption, struct device *d, uint64_t *answer)
{
    ENTER(d);
    uint64_t us = now_us(), into = d->power_us ? us % d->power_us : 0, high = d->power_us * 3 / 5;
    uint64_t busy = d->power_us ? us / d->power_us * high + (into < high ? into : high) : us;
    double joules = d->power_mw * 1e-9 * (busy + (us - busy) * 0.4);
    *answer = joules * 1000;
    return d->power_mw < 0 ? NOT_SUPPORTED : SUCCESS;
}

API(nvmlDeviceGetPowerUsage, struct device *d, unsigned *answer) { ENTER(d); return power(d, answer); }

API(nvmlDeviceGetFieldValues, struct device *d, int count, struct field *fields)
{
    ENTER(d);
    for (struct field *field = fields; field < fields + count; field++) {
        unsigned value = 0;
        field->code = field->id == RECOVERY_ACTION ? number(d->recovery, &value)
            : field->id == POWER_INSTANT           ? power(d, &value)
                                                   : NOT_SUPPORTED;
        field->value = value;
        field->type = 1;
    }
    return SUCCESS;
}

API(nvmlDeviceGetTotalEccErrors, struct device *d, unsigned type, unsigned counter, uint64_t *answer)
{
    unsigned value;
    (void)counter;
    ENTER(d);
    int code = number(d->uncorrectable, &value);
    *answer = type == 1 ? value : 0;
    return code;
}

struct event_set { uint64_t seen, types[GPUS]; };
struct event_data { struct device *device; uint64_t type, data; unsigned instance, compute_instance; };

API(nvmlDeviceGetSupportedEventTypes, struct device *d, uint64_t *answer) { ENTER(d); *answer = d->events; return SUCCESS; }

API(nvmlEventSetCreate, struct event_set **answer)
{
    ENTER(NULL);
    *answer = calloc(1, sizeof **answer);
    (*answer)->seen = state->written;
    return SUCCESS;
}

API(nvmlEventSetFree, struct event_set *set) { ENTER(NULL); free(set); return SUCCESS; }

API(nvmlDeviceRegisterEvents, struct device *d, uint64_t types, struct event_set *set)
{
    ENTER(d);
    set->types[gpu_of(d)] |= types;
    return types & ~d->events ? NOT_SUPPORTED : SUCCESS;
}

API(nvmlEventSetWait_v2, struct event_set *set, struct event_data *answer, unsigned limit_ms)
{
    enum { STEP_MS = 100 };
    ENTER(NULL);
    for (;; limit_ms -= STEP_MS) {
        while (set->seen < __atomic_load_n(&state->written, __ATOMIC_ACQUIRE)) {
            const struct event *event = &state->event[set->seen++ % EVENTS];
            if (set->types[event->gpu] & event->type) {
                *answer = (struct event_data){&state->device[event->gpu], event->type, event->data, -1, -1};
                return SUCCESS;
            }
        }
        if (limit_ms < STEP_MS)
            return TIMEOUT;
        pause_ms(STEP_MS);
    }
}

#ifndef OLD_DRIVER

struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };

API(nvmlDeviceGetMemoryInfo_v2, struct device *d, struct memory_v2 *answer)
{
    ENTER(d);
    if (answer->version != (sizeof *answer | 2 << 24))
        return VERSION_MISMATCH;
    *answer = (struct memory_v2){answer->version, d->total, 0, d->total - used(d), used(d)};
    return SUCCESS;
}

API(nvmlDeviceGetComputeRunningProcesses_v3, struct device *d, unsigned *count, struct process_info *answer)
{
    ENTER(d);
    return processes(d, count, answer);
}

API(nvmlDeviceGetCpuAffinityWithinScope, struct device *d, unsigned words, uint64_t *answer, unsigned scope)
{
    (void)scope;
    ENTER(d);
    memset(answer, 0, words * sizeof *answer);
    memcpy(answer, d->cpus, (words < CPU_WORDS ? words : CPU_WORDS) * sizeof *answer);
    return SUCCESS;
}

API(nvmlDeviceGetNvLinkRemoteDeviceType, struct device *d, unsigned link, unsigned *answer)
{
    ENTER(d);
    *answer = d->link[link % LINKS].type;
    return link_of(d, link);
}

struct fabric { unsigned version; uint8_t cluster[16]; int status; unsigned clique; unsigned state, health; };

API(nvmlDeviceGetGpuFabricInfoV, struct device *d, struct fabric *answer)
{
    ENTER(d);
    if (answer->version != (sizeof *answer | 2 << 24))
        return VERSION_MISMATCH;
    memcpy(answer->cluster, d->fabric, sizeof answer->cluster);
    answer->status = SUCCESS;
    answer->clique = d->clique;
    answer->health = 0;
    return number(d->fabric_state, &answer->state);
}

API(nvmlDeviceGetRemappedRows, struct device *d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed)
{
    ENTER(d);
    *correctable = *uncorrectable = 0;
    number(d->remap_failed, failed);
    return number(d->remap_pending, pending);
}

#endif
