/* The counters of a device that are not GPM: clocks, power, energy, memory, and values by field. */
#include "devices.h"

#include <limits.h>
#include <stdio.h>

#undef nvmlDeviceGetMemoryInfo

static unsigned long long used_bytes(const struct nvmlDevice_st *device) {
  return (unsigned long long)quantities(device)[Q_MEM_USED];
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
  DEVICE(out);
  if (device->unified) return NVML_ERROR_NOT_SUPPORTED;
  out->total = device->mem_total;
  out->used = used_bytes(device);
  out->free = out->total - out->used;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
  DEVICE(out);
  if (device->unified) return NVML_ERROR_NOT_SUPPORTED;
  if (out->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  out->total = device->mem_total;
  out->reserved = 700ULL << 20;
  out->used = used_bytes(device);
  out->free = out->total - out->used - out->reserved;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
  DEVICE(out);
  if (device->mig || device->parent) return NVML_ERROR_NOT_SUPPORTED;
  out->gpu = (unsigned)quantities(device)[Q_GPU_UTIL];
  out->memory = (unsigned)quantities(device)[Q_MEM_UTIL];
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *out) {
  DEVICE(out);
  WHOLE;
  *out = (unsigned)quantities(device)[type == NVML_CLOCK_MEM ? Q_MEM_CLK : Q_SM_CLK];
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *out) {
  DEVICE(out);
  WHOLE;
  *out = type == NVML_CLOCK_MEM ? device->mem_clk_max : device->sm_max;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  WHOLE;
  *out = device->bus_width;
  return device->bus_width ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  WHOLE;
  *out = (unsigned)(quantities(device)[Q_POWER] * 1000 + .5);
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *out) {
  DEVICE(out);
  WHOLE;
  *out = (unsigned)(device->power_limit_w * 1000);
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *lowest,
                                                                 unsigned int *highest) {
  DEVICE(lowest && highest);
  WHOLE;
  if (device->power_limit_max_w == 0) return NVML_ERROR_NOT_SUPPORTED;
  *lowest = (unsigned)(device->power_limit_min_w * 1000);
  *highest = (unsigned)(device->power_limit_max_w * 1000);
  return NVML_SUCCESS;
}
static unsigned long long energy_mj(const struct nvmlDevice_st *device) {
  return (unsigned long long)(integral(device, Q_POWER, 0, clock_s()) * 1000 + .5);
}
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *out) {
  DEVICE(out);
  WHOLE;
  *out = energy_mj(device);
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *out) {
  (void)sensor;
  DEVICE(out);
  if (device->parent) return NVML_ERROR_INVALID_ARGUMENT;
  *out = (unsigned)quantities(device)[Q_TEMP];
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
  DEVICE(out);
  if (device->parent) return NVML_ERROR_INVALID_ARGUMENT;
  if (out->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  out->temperature = (int)quantities(device)[Q_TEMP];
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *out) {
  DEVICE(out);
  WHOLE;
  *out = (unsigned long long)quantities(device)[Q_THROTTLE];
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *out) {
  DEVICE(out);
  WHOLE;
  *out = (unsigned long long)quantities(device)[Q_THROTTLE];
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t which, unsigned int *out) {
  DEVICE(out);
  WHOLE;
  enum quantity q = which == NVML_PCIE_UTIL_TX_BYTES ? Q_PCIE_TX : Q_PCIE_RX;
  *out = (unsigned)(quantities(device)[q] * 1048.576 + .5); /* KB/s */
  return NVML_SUCCESS;
}

/* ---- values by field ---- */

static void whole_number(nvmlFieldValue_t *value, double number) {
  value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
  value->value.ullVal = (unsigned long long)(number + .5);
}
static void throttled(const struct nvmlDevice_st *device, nvmlFieldValue_t *value, unsigned long long bit) {
  if (!device->accumulated) value->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  else whole_number(value, throttled_s(device, bit, clock_s()) * device->throttle_unit);
}
/* As NVIDIA's bindings of each version number them: three fields have moved, others lie where they were. */
static int moved_fields(void) {
  int major = 0, minor = 0;
  sscanf(driver_version, "%d.%d", &major, &minor);
  int version = major * 1000 + minor;
  if (version < 575051) return -1;
  return version < 580082 ? 251 : 269;
}
static void nvlink(const struct nvmlDevice_st *device, nvmlFieldValue_t *value, enum quantity what) {
  if (!device->nvlink) value->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  else if (value->scopeId != UINT_MAX) value->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT; /* one link is not played */
  else whole_number(value, integral(device, what, 0, clock_s()) * 1024); /* KiB */
}
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
  DEVICE(values);
  for (int i = 0; i < count; i++) {
    nvmlFieldValue_t *v = &values[i];
    v->nvmlReturn = NVML_SUCCESS;
    v->timestamp = (long long)(clock_s() * 1e6);
    v->latencyUsec = 1;
    static const unsigned long long moved_bits[] = {0x20, 0x40, 0x80};
    int moved = (int)v->fieldId - moved_fields();
    if (moved_fields() > 0 && moved >= 0 && moved < 3) {
      throttled(device, v, moved_bits[moved]);
      continue;
    }
    switch (v->fieldId) {
      case NVML_FI_DEV_POWER_INSTANT:
      case NVML_FI_DEV_POWER_AVERAGE:
        if (!device->power_field) v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        v->value.uiVal = (unsigned)(quantities(device)[Q_POWER] * 1000 + .5);
        break;
      case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
        whole_number(v, (double)energy_mj(device));
        if (device->value_type >= 0) v->valueType = (nvmlValueType_t)device->value_type;
        break;
      case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: nvlink(device, v, Q_NVL_TX); break;
      case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: nvlink(device, v, Q_NVL_RX); break;
      case NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: throttled(device, v, 0x4); break;
      case NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: throttled(device, v, 0x10); break;
      case 251: case 252: case 253: case 269: case 270: case 271: whole_number(v, clock_s() * 1e8); break; /* other */
      default: v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
  }
  return NVML_SUCCESS;
}
