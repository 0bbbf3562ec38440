/* A stand-in for NVML, and for what is asked of the CUDA driver beside it. FAKE_NVML says what it refuses. */

#include <stdlib.h>
#include <string.h>

static int is_mode(const char *mode) {
  const char *found = getenv("FAKE_NVML");
  return found && !strcmp(found, mode);
}

int nvmlInit_v2(void) { return is_mode("driver") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }

const char *nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : code == 6 ? "Not Found" : "Insufficient Permissions";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
  *device = (void *)0x10;
  return strcmp(id, "00000000:1B:00.0") ? 6 : 0;
}

int nvmlDeviceGetClockInfo(void *device, int domain, unsigned *mhz) {
  *mhz = 1500;
  return device == (void *)0x10 && domain == 1 ? 0 : 2;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = 700000;
  return is_mode("power") ? 4 : 0;
}

/* Goes up by half of what that power would make of a batch of calls, so that a test can tell the two. */
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  static unsigned long long total = 1000000;
  *millijoules = total += 8750;
  return is_mode("energy") ? 3 : 0;
}

int cuDeviceGetPCIBusId(char *text, int size, int device) {
  if (device != 0)
    return 101;
  strncpy(text, "00000000:1B:00.0", size);
  return 0;
}
