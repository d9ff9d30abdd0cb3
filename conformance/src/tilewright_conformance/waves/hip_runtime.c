/* A HIP runtime whose device is what the functions behind `stand_in` make of it: the calls that the host's side makes, and nothing else. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int (*attribute)(int number, int device);
    void (*properties)(void *place, int device);
    uint64_t (*load)(const void *image);
    uint64_t (*function)(uint64_t module, const char *name);
    int (*function_attribute)(int number, uint64_t function);
    uint64_t (*allocate)(uint64_t size);
    void (*release)(uint64_t address);
    int (*launch)(uint64_t function, const uint32_t *grid, uint32_t threads, uint32_t shared, uint64_t stream, void **arguments);
} Device;

static Device device;
static _Thread_local int current;
static _Thread_local int mode;
static int fault;

void stand_in(const Device *made) { device = *made; }

int hipInit(unsigned flags) { return 0; }
int hipGetDeviceCount(int *count) { return *count = 1, 0; }
int hipDeviceGet(int *found, int ordinal) { return *found = ordinal, 0; }
int hipDeviceGetName(char *name, int size, int number) { return strncpy(name, "Stand-in", size), 0; }
int hipDeviceTotalMem(size_t *bytes, int number) { return *bytes = 1 << 26, 0; }
int hipDeviceGetAttribute(int *value, int number, int which) { return *value = device.attribute(number, which), 0; }
int hipGetDevicePropertiesR0600(void *place, int number) { return device.properties(place, number), 0; }
int hipGetDevice(int *number) { return *number = current, 0; }
int hipSetDevice(int number) { return current = number, 0; }
int hipModuleLoadData(uint64_t *module, const void *image) { return (*module = device.load(image)) ? 0 : 209; }
int hipModuleUnload(uint64_t module) { return 0; }
int hipModuleGetFunction(uint64_t *function, uint64_t module, const char *name) { return (*function = device.function(module, name)) ? 0 : 500; }
int hipFuncGetAttribute(int *value, int number, uint64_t function) { return *value = device.function_attribute(number, function), 0; }
int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, uint64_t function, int threads, size_t shared) { return *blocks = 2, 0; }
int hipModuleLaunchKernel(uint64_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,
                          uint64_t stream, void **arguments, void **extra) {
    const uint32_t grid[3] = {gx, gy, gz};
    if (fault) return fault;
    fault = device.launch(function, grid, bx * by * bz, shared, stream, arguments);
    return 0;
}
int hipDeviceSynchronize(void) { return fault; }
int hipMalloc(uint64_t *address, size_t size) { return (*address = device.allocate(size)) ? 0 : 2; }
int hipFree(uint64_t address) { return device.release(address), 0; }
int hipMemcpyHtoD(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int hipMemcpyDtoH(void *to, const void *from, size_t size) { return memcpy(to, from, size), 0; }
int hipMemsetAsync(void *place, int byte, size_t size, uint64_t stream) { return memset(place, byte, size), 0; }
int hipEventCreate(uint64_t *event) { return *event = 1, 0; }
int hipEventRecord(uint64_t event, uint64_t stream) { return 0; }
int hipEventSynchronize(uint64_t event) { return fault; }
int hipEventElapsedTime(float *milliseconds, uint64_t start, uint64_t end) { return *milliseconds = 0.5f, 0; }
int hipEventDestroy(uint64_t event) { return 0; }
int hipThreadExchangeStreamCaptureMode(int *exchanged) {
    int before = mode;
    return mode = *exchanged, *exchanged = before, 0;
}
const char *hipGetErrorString(int code) { return "what the runtime says"; }
const char *hipGetErrorName(int code) { return "a name"; }
