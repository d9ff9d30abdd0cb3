/* A HIP runtime whose device is what the functions behind `stand_in` make of it: the calls that the host's side makes, and nothing else. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Workgroups that a compute unit holds, whatever they are, and hipDeviceAttributeMultiprocessorCount. */
enum { RESIDENT = 2, MULTIPROCESSORS = 63 };

typedef struct {
    int (*attribute)(int number, int device);
    void (*properties)(void *place, int device);
    uint64_t (*load)(const void *image);
    void (*unload)(uint64_t module);
    uint64_t (*function)(uint64_t module, const char *name);
    int (*function_attribute)(int number, uint64_t function);
    uint64_t (*allocate)(uint64_t size);
    void (*release)(uint64_t address);
    int (*launch)(uint64_t function, const uint32_t *grid, uint32_t threads, uint32_t shared, uint64_t stream, void **arguments, int cooperative);
    const char *(*explain)(int code);
} Device;

static Device device;
static _Thread_local int current;
static _Thread_local int mode;
static int fault;
static int aborts;

void stand_in(const Device *made) { device = *made; }
void stand_in_recover(void) { fault = 0; }
void stand_in_aborts(int yes) { aborts = yes; }

/* What a launch came to. As HSA does, a fault may end the process, on a thread of the runtime's. */
static void *end(void *unused) { abort(); }
static int launched(int status) {
    pthread_t thread;
    if ((fault = status) && aborts && !pthread_create(&thread, NULL, end, NULL)) pthread_join(thread, NULL);
    return 0;
}

int hipInit(unsigned flags) { return 0; }
int hipGetDeviceCount(int *count) { return *count = 1, 0; }
int hipDeviceGet(int *found, int ordinal) { return *found = ordinal, 0; }
int hipDeviceGetName(char *name, int size, int number) { return strncpy(name, "emulated waves", size), 0; }
int hipDeviceTotalMem(size_t *bytes, int number) { return *bytes = (size_t)1 << 30, 0; }
int hipDeviceGetAttribute(int *value, int number, int which) { return *value = device.attribute(number, which), 0; }
int hipGetDevicePropertiesR0600(void *place, int number) { return device.properties(place, number), 0; }
int hipGetDevice(int *number) { return *number = current, 0; }
int hipSetDevice(int number) { return current = number, 0; }
int hipModuleLoadData(uint64_t *module, const void *image) { return (*module = device.load(image)) ? 0 : 209; }
int hipModuleUnload(uint64_t module) { return device.unload(module), 0; }
int hipModuleGetFunction(uint64_t *function, uint64_t module, const char *name) { return (*function = device.function(module, name)) ? 0 : 500; }
int hipFuncGetAttribute(int *value, int number, uint64_t function) { return *value = device.function_attribute(number, function), 0; }
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, uint64_t function, int threads, size_t shared) { return *blocks = RESIDENT, 0; }
int hipModuleLaunchKernel(uint64_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,
                          uint64_t stream, void **arguments, void **extra) {
    const uint32_t grid[3] = {gx, gy, gz};
    if (fault) return fault;
    return launched(device.launch(function, grid, bx * by * bz, shared, stream, arguments, 0));
}
int hipModuleLaunchCooperativeKernel(uint64_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,
                                     uint64_t stream, void **arguments) {
    const uint32_t grid[3] = {gx, gy, gz};
    if (fault) return fault;
    if ((uint64_t)gx * gy * gz > (uint64_t)RESIDENT * device.attribute(MULTIPROCESSORS, 0)) return 720;
    return launched(device.launch(function, grid, bx * by * bz, shared, stream, arguments, 1));
}
int hipDeviceSynchronize(void) { return fault; }
int hipStreamSynchronize(uint64_t stream) { return fault; }
int hipMalloc(uint64_t *address, size_t size) { return (*address = device.allocate(size)) ? 0 : 2; }
int hipHostMalloc(uint64_t *address, size_t size, unsigned flags) { return hipMalloc(address, size); }
int hipFree(uint64_t address) { return device.release(address), 0; }
int hipMemcpyHtoD(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int hipMemcpyDtoH(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int hipMemsetAsync(void *place, int byte, size_t size, uint64_t stream) { return memset(place, byte, size), 0; }
/* Launches are done when they return: the time of an event is that of the host. */
int hipEventCreate(struct timespec **event) { return (*event = calloc(1, sizeof **event)) ? 0 : 2; }
int hipEventRecord(struct timespec *event, uint64_t stream) { return clock_gettime(CLOCK_MONOTONIC, event) ? 999 : fault; }
int hipEventSynchronize(struct timespec *event) { return fault; }
int hipEventElapsedTime(float *milliseconds, const struct timespec *start, const struct timespec *end) {
    return *milliseconds = (end->tv_sec - start->tv_sec) * 1e3f + (end->tv_nsec - start->tv_nsec) * 1e-6f, fault;
}
int hipEventDestroy(struct timespec *event) { return free(event), 0; }
int hipStreamIsCapturing(uint64_t stream, int *status) { return *status = 0, 0; }
int hipThreadExchangeStreamCaptureMode(int *exchanged) {
    int before = mode;
    return mode = *exchanged, *exchanged = before, 0;
}
const char *hipGetErrorString(int code) { return device.explain(code); }
const char *hipGetErrorName(int code) { return "a name"; }
