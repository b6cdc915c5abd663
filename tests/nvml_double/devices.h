/* What every function of the double begins with. */
#ifndef NVML_DOUBLE_DEVICES_H
#define NVML_DOUBLE_DEVICES_H
#include "profile.h"

int library_open(void);
nvmlReturn_t state_of(const struct nvmlDevice_st *device);

#define OPEN if (!library_open()) return NVML_ERROR_UNINITIALIZED
#define FAILS(whom) do { \
    int failure = failure_of(whom, __func__); \
    if (failure) return (nvmlReturn_t)failure; \
  } while (0)
#define DEVICE(out) do { \
    nvmlReturn_t state = state_of(device); \
    if (state != NVML_SUCCESS) return state; \
    FAILS(device); \
    if (!(out)) return NVML_ERROR_INVALID_ARGUMENT; \
  } while (0)
#define WHOLE if (device->parent) return NVML_ERROR_NOT_SUPPORTED /* what a slice does not know of itself */
#endif
