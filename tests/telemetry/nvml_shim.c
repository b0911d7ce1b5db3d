/* A stand-in for libnvidia-ml.so.1 that says what a text file tells it to.
 *
 * $NVML_SHIM names the file. It is read anew when it has changed, so a test may change its GPU in
 * mid-run. One "key value" a line; the last line of a key wins:
 *
 *   gpus 2                                how many there are; device i has index i
 *   uuid.0 GPU-aaaa     name.0 …          of device 0
 *   mig.uuid MIG-bbbb   mig.board 1       one slice (GPU instance 7) of device 1
 *   <function> 5000                       what it answers, in NVML's unit
 *   <function>.error 3                    … or the code that it returns instead
 *   <function>.delay_ms 300               … and how long it takes, or until it is said to be less
 *   lost 15                               the code that every call about a device returns
 *   generation 2                          a driver loaded anew: handles of a library opened under
 *                                         the one before answer 999
 *   energy.tick_ms 100, energy.w 300      the energy counter grows by 300 W, in steps of 100 ms
 *   field.186 250000, field.186.error 3   field values, each with its own code
 *   gpm.2 96.5, gpm.2.error 3             GPM metrics likewise ("nan" is a value)
 *   process.0 4711 35                     a process on the GPU by its pid, and its SMs' use in %,
 *                                         0: the driver has no sample of it
 *
 * Any key may be prefixed with a device: "gpu1.<key>", "mig.<key>".
 * Every call appends a line "<function> <device>" to $NVML_SHIM.calls, unless it says "quiet 1".
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_FOUND = 6 };
#define MIG 100 /* handles are device + 1; the slice's is MIG + 1 */

static int device_of(void *handle) { return (int)(intptr_t)handle - 1; }
static void *handle_of(int device) { return (void *)(intptr_t)(device + 1); }

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

/* What the file says, read again only when it has changed. */
static const char *contents(void) {
    static char text[65536], known[512];
    static struct stat before;
    struct stat now;
    const char *path = getenv("NVML_SHIM");
    if (!path || stat(path, &now)) return "";
    if (strcmp(path, known) || now.st_size != before.st_size || now.st_ino != before.st_ino) {
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[length] = 0;
        now.st_size = (off_t)length;
        before = now;
        snprintf(known, sizeof known, "%s", path);
    }
    return text;
}

static int plain_lookup(const char *key, char *text, size_t size) {
    int found = 0;
    size_t length = strlen(key);
    pthread_mutex_lock(&reading);
    for (const char *line = contents(); *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, length) || line[length] != ' ') continue;
        line += length + 1;
        snprintf(text, size, "%.*s", (int)strcspn(line, "\n"), line);
        found = 1;
    }
    pthread_mutex_unlock(&reading);
    return found;
}

static int lookup(int device, const char *key, char *text, size_t size) {
    char own[256];
    if (device == MIG) snprintf(own, sizeof own, "mig.%s", key);
    else snprintf(own, sizeof own, "gpu%d.%s", device, key);
    return plain_lookup(own, text, size) || plain_lookup(key, text, size);
}

static double number(int device, double otherwise, const char *format, ...) {
    char key[200], text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    return lookup(device, key, text, sizeof text) ? strtod(text, NULL) : otherwise;
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + (double)now.tv_nsec / 1e6;
}

static int connections, generation;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER; /* threads open and close at once */

/* Log the call, take its time, and return its error if it is to have one. */
static int begin(const char *function, int device) {
    char path[512];
    snprintf(path, sizeof path, "%s.calls", getenv("NVML_SHIM") ? getenv("NVML_SHIM") : "");
    FILE *log = number(-1, 0, "quiet") ? NULL : fopen(path, "a");
    if (log) {
        fprintf(log, "%s %d\n", function, device);
        fclose(log);
    }
    double began_ms = now_ms(), left_ms;
    while ((left_ms = began_ms + number(device, 0, "%s.delay_ms", function) - now_ms()) > 0) {
        usleep((useconds_t)(1000 * (left_ms < 20 ? left_ms : 20)));
        if (left_ms < 20) break;
    }
    if (device >= 0 && generation != (int)number(-1, 0, "generation")) return 999;
    int lost = device < 0 ? 0 : (int)number(device, 0, "lost");
    return lost ? lost : (int)number(device, 0, "%s.error", function);
}

#define BEGIN(device) \
    do { int code = begin(__func__, device); if (code) return code; } while (0)
#define VALUE(device, otherwise) number(device, otherwise, "%s", __func__)

/* ── the library ─────────────────────────────────────────────────────────────────────── */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    BEGIN(-1);
    pthread_mutex_lock(&counting);
    if (!connections++) generation = (int)number(-1, 0, "generation");
    pthread_mutex_unlock(&counting);
    return SUCCESS;
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&counting);
    int was_open = connections > 0;
    connections -= was_open;
    pthread_mutex_unlock(&counting);
    BEGIN(-1);
    return was_open ? SUCCESS : UNINITIALIZED;
}

const char *nvmlErrorString(int code) { (void)code; return "something else"; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    BEGIN(-1);
    snprintf(version, size, "%s", "580.65.06");
    return SUCCESS;
}

/* ── devices ─────────────────────────────────────────────────────────────────────────── */

static int gpus(void) { return (int)number(-1, 1, "gpus"); }

int nvmlDeviceGetCount_v2(unsigned *count) { BEGIN(-1); *count = (unsigned)gpus(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    BEGIN((int)index);
    *handle = handle_of((int)index);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char key[32], text[256];
    BEGIN(-1);
    for (int device = 0; device < gpus(); device++) {
        snprintf(key, sizeof key, "uuid.%d", device);
        if (plain_lookup(key, text, sizeof text) && !strcmp(text, uuid)) {
            *handle = handle_of(device);
            return (int)number(device, 0, "lost");
        }
    }
    if (!plain_lookup("mig.uuid", text, sizeof text) || strcmp(text, uuid)) return NOT_FOUND;
    *handle = handle_of(MIG);
    return SUCCESS;
}

static int text_of(const char *what, int device, char *out, unsigned size) {
    char key[32], text[256];
    snprintf(key, sizeof key, "%s.%d", what, device);
    if (!plain_lookup(key, text, sizeof text)) return NOT_FOUND;
    snprintf(out, size, "%s", text);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) {
    BEGIN(device_of(gpu));
    return text_of("uuid", device_of(gpu), out, size);
}

int nvmlDeviceGetName(void *gpu, char *out, unsigned size) {
    BEGIN(device_of(gpu));
    return text_of("name", device_of(gpu), out, size);
}

int nvmlDeviceGetIndex(void *gpu, unsigned *index) {
    BEGIN(device_of(gpu));
    *index = (unsigned)device_of(gpu);
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **board) {
    BEGIN(device_of(slice));
    *board = handle_of((int)number(-1, 0, "mig.board"));
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void *slice, unsigned *instance) {
    BEGIN(device_of(slice));
    *instance = 7;
    return SUCCESS;
}

/* ── single values ───────────────────────────────────────────────────────────────────── */

struct utilisation { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *gpu, struct utilisation *rates) {
    int device = device_of(gpu);
    BEGIN(device);
    rates->gpu = (unsigned)VALUE(device, 87);
    rates->memory = (unsigned)number(device, 23, "%s.memory", __func__);
    return SUCCESS;
}

#define MIB 1048576ull
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *memory) {
    int device = device_of(gpu);
    BEGIN(device);
    memory->total = 81920 * MIB;
    memory->used = (unsigned long long)VALUE(device, 1500 * (double)MIB);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory_v2 *memory) {
    int device = device_of(gpu);
    BEGIN(device);
    memory->total = (unsigned long long)number(device, 81920 * (double)MIB, "%s.total", __func__);
    memory->reserved = (unsigned long long)number(device, 500 * (double)MIB, "%s.reserved", __func__);
    memory->used = (unsigned long long)VALUE(device, 1000 * (double)MIB);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

struct temperature { unsigned version, sensor; int degrees; };
int nvmlDeviceGetTemperatureV(void *gpu, struct temperature *temperature) {
    BEGIN(device_of(gpu));
    temperature->degrees = (int)VALUE(device_of(gpu), 61);
    return SUCCESS;
}

#define UNSIGNED_VALUE(function, type, otherwise)                                             \
    int function(void *gpu, type *value) {                                                    \
        BEGIN(device_of(gpu));                                                                \
        *value = (type)VALUE(device_of(gpu), otherwise);                                      \
        return SUCCESS;                                                                       \
    }
#define UNSIGNED_VALUE_OF(function, otherwise)                                                \
    int function(void *gpu, unsigned which, unsigned *value) {                                \
        (void)which;                                                                          \
        BEGIN(device_of(gpu));                                                                \
        *value = (unsigned)VALUE(device_of(gpu), otherwise);                                  \
        return SUCCESS;                                                                       \
    }
UNSIGNED_VALUE_OF(nvmlDeviceGetTemperature, 59)
UNSIGNED_VALUE_OF(nvmlDeviceGetClockInfo, 1980)
UNSIGNED_VALUE_OF(nvmlDeviceGetPcieThroughput, 1) /* there to show that nobody calls it */
UNSIGNED_VALUE(nvmlDeviceGetPowerUsage, unsigned, 240000)
UNSIGNED_VALUE(nvmlDeviceGetEnforcedPowerLimit, unsigned, 700000)
UNSIGNED_VALUE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 0)
UNSIGNED_VALUE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 0)

int nvmlDeviceGetTotalEnergyConsumption(void *gpu, unsigned long long *millijoules) {
    int device = device_of(gpu);
    BEGIN(device);
    double tick_ms = number(device, 0, "energy.tick_ms"), past_j = VALUE(device, 12345678);
    double ticks = tick_ms ? floor(now_ms() / tick_ms) : 0;
    *millijoules = (unsigned long long)(past_j + ticks * tick_ms * number(device, 0, "energy.w"));
    return SUCCESS;
}

/* ── field values ────────────────────────────────────────────────────────────────────── */

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, code;
    union { double d; unsigned ui; unsigned long long ull; } value;
};
int nvmlDeviceGetFieldValues(void *gpu, int count, struct field *fields) {
    int device = device_of(gpu);
    BEGIN(device);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "field.%u", fields[i].id);
        fields[i].code = (unsigned)begin(name, device);
        fields[i].type = (unsigned)number(device, fields[i].id == 186 ? 1 : 3, "%s.type", name);
        double value = number(device, fields[i].id == 186 ? 251500 : 0, "%s", name);
        if (fields[i].type == 0) fields[i].value.d = value;
        else if (fields[i].type == 1) fields[i].value.ui = (unsigned)value;
        else fields[i].value.ull = (unsigned long long)value;
    }
    return SUCCESS;
}

/* ── processes ───────────────────────────────────────────────────────────────────────── */

enum { INSUFFICIENT_SIZE = 7, MOST_PROCESSES = 8 };

/* Read who is on the GPU; return how many. */
static unsigned processes(int device, unsigned pids[], unsigned used[]) {
    unsigned count = 0;
    for (char key[32], text[64]; count < MOST_PROCESSES; count++) {
        snprintf(key, sizeof key, "process.%u", count);
        if (!lookup(device, key, text, sizeof text)) break;
        sscanf(text, "%u %u", &pids[count], &used[count]);
    }
    return count;
}

struct process { unsigned pid; unsigned long long memory; unsigned instance, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *room, struct process *found) {
    unsigned pids[MOST_PROCESSES], used[MOST_PROCESSES];
    BEGIN(device_of(gpu));
    unsigned count = processes(device_of(gpu), pids, used);
    for (unsigned i = 0; found && i < count; i++) found[i].pid = pids[i];
    *room = count;
    return found || !count ? SUCCESS : INSUFFICIENT_SIZE;
}

struct use { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(void *gpu, struct use *found, unsigned *room,
                                    unsigned long long since_us) {
    unsigned pids[MOST_PROCESSES], used[MOST_PROCESSES], samples = 0;
    struct timespec now;
    BEGIN(device_of(gpu));
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long now_us =
        (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    unsigned count = since_us < now_us ? processes(device_of(gpu), pids, used) : 0;
    for (unsigned i = 0; i < count; i++) {
        if (!used[i]) continue;
        if (found) found[samples] = (struct use){.pid = pids[i], .at_us = now_us, .sm = used[i]};
        samples++;
    }
    *room = samples;
    return !samples ? NOT_FOUND : found ? SUCCESS : INSUFFICIENT_SIZE;
}

/* ── GPM ─────────────────────────────────────────────────────────────────────────────── */

struct gpm_support { unsigned version, supported; };
int nvmlGpmQueryDeviceSupport(void *gpu, struct gpm_support *support) {
    BEGIN(device_of(gpu));
    support->supported = (unsigned)VALUE(device_of(gpu), 1);
    return SUCCESS;
}

struct gpm_sample { int device, instance; };
int nvmlGpmSampleAlloc(struct gpm_sample **sample) {
    BEGIN(-1);
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

int nvmlGpmSampleFree(struct gpm_sample *sample) { free(sample); BEGIN(-1); return SUCCESS; }

int nvmlGpmSampleGet(void *gpu, struct gpm_sample *sample) {
    BEGIN(device_of(gpu));
    sample->device = device_of(gpu);
    return SUCCESS;
}

int nvmlGpmMigSampleGet(void *gpu, unsigned instance, struct gpm_sample *sample) {
    BEGIN(device_of(gpu));
    if (instance != 7) return INVALID;
    sample->device = MIG;
    return SUCCESS;
}

struct gpm_metric {
    unsigned id, code;
    double value;
    char *texts[3];
};
struct gpm_question {
    unsigned version, count;
    struct gpm_sample *before, *after;
    struct gpm_metric metrics[];
};
int nvmlGpmMetricsGet(struct gpm_question *question) {
    int device = question->after->device;
    BEGIN(device);
    if (question->before == question->after || question->before->device != device) return INVALID;
    for (unsigned i = 0; i < question->count; i++) {
        struct gpm_metric *metric = &question->metrics[i];
        metric->code = (unsigned)number(device, 0, "gpm.%u.error", metric->id);
        metric->value = number(device, metric->id, "gpm.%u", metric->id);
    }
    return SUCCESS;
}
