/* A libnvidia-ml.so.1 for tests, written against the public nvml.h (PyPI nvidia-nvml-dev): library, devices, MIG. */
#define _GNU_SOURCE
#include "devices.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#undef nvmlInit
#undef nvmlDeviceGetCount
#undef nvmlDeviceGetHandleByIndex

static int references, listed[MAX_DEVICES], listed_count;
static double opened_s;

int library_open(void) { return references > 0; }

nvmlReturn_t state_of(const struct nvmlDevice_st *device) {
  if (!library_open()) return NVML_ERROR_UNINITIALIZED;
  if (!device || device->magic != DEVICE_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  if (gone_between(device, opened_s, clock_s())) return NVML_ERROR_GPU_IS_LOST;
  if (device->parent && !slice_exists(device, clock_s())) return NVML_ERROR_INVALID_ARGUMENT;
  return NVML_SUCCESS;
}

/* ---- the library ---- */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  if (!references && read_profile()) return NVML_ERROR_DRIVER_NOT_LOADED;
  FAILS(NULL);
  if (!references++) {
    opened_s = clock_s();
    listed_count = listed_at(opened_s, listed);
  }
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlShutdown(void) {
  OPEN;
  FAILS(NULL);
  references--;
  return NVML_SUCCESS;
}
EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
  switch ((int)result) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    default: return "Unknown Error";
  }
}

static nvmlReturn_t text(char *out, unsigned size, const char *value) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(value) + 1 > size) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(out, value);
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int size) {
  OPEN;
  FAILS(NULL);
  return text(out, size, driver_version);
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int size) {
  OPEN;
  FAILS(NULL);
  return text(out, size, nvml_version);
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out) {
  OPEN;
  FAILS(NULL);
  *out = cuda_version;
  return NVML_SUCCESS;
}

/* ---- which devices there are ---- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out) {
  OPEN;
  FAILS(NULL);
  *out = (unsigned)listed_count;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out) {
  OPEN;
  if (index >= (unsigned)listed_count) return NVML_ERROR_INVALID_ARGUMENT;
  *out = device_at(listed[index]);
  FAILS(*out);
  return gone_between(*out, opened_s, clock_s()) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
  OPEN;
  for (int i = 0; i < listed_count; i++)
    if (!strcmp(uuid, device_at(listed[i])->uuid)) {
      *out = device_at(listed[i]);
      FAILS(*out);
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned int size) {
  DEVICE(out);
  return text(out, size, device->name);
}
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int size) {
  DEVICE(out);
  return text(out, size, device->uuid);
}
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  for (int i = 0; i < listed_count; i++)
    if (device_at(listed[i]) == device) *out = (unsigned)i;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  DEVICE(major);
  *major = device->cc_major, *minor = device->cc_minor;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *out) {
  DEVICE(out);
  *out = (nvmlDeviceArchitecture_t)device->arch;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  *out = device->cores;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
  DEVICE(out);
  memset(out, 0, sizeof *out);
  snprintf(out->busId, sizeof out->busId, "%s", device->bus);
  snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%.12s", device->bus + 4);
  out->bus = (unsigned)device->index + 1;
  return NVML_SUCCESS;
}
static nvmlReturn_t processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out) {
  unsigned room = *count;
  *count = (unsigned)device->pid_count;
  if (!*count) return NVML_SUCCESS;
  if (!out || room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < *count; i++) {
    memset(&out[i], 0, sizeof out[i]);
    out[i].pid = (unsigned)device->pids[i];
  }
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_t *out) {
  DEVICE(count);
  return processes(device, count, out);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_v2_t *out) {
  DEVICE(count);
  return processes(device, count, (nvmlProcessInfo_t *)out); /* the same structure, by another name */
}

/* ---- MIG ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
  DEVICE(current);
  if (device->arch < 7) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = (unsigned)device->mig;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  *out = device->mig ? MAX_SLICES : 0;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *out) {
  DEVICE(out);
  WHOLE;
  for (int n = 0; n < MAX_SLICES; n++)
    if (slice_exists(&device->slices[n], clock_s()) && !index--) {
      *out = &device->slices[n];
      return NVML_SUCCESS;
    }
  return NVML_ERROR_NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
  DEVICE(out);
  if (!device->parent) return NVML_ERROR_INVALID_ARGUMENT;
  *out = device->parent;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  if (!device->parent) return NVML_ERROR_INVALID_ARGUMENT;
  *out = device->gi;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  *out = device->parent != NULL;
  return NVML_SUCCESS;
}
