/* GPM: two samples of the counters, and the exact means between them. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLE_MAGIC 0x47504d31u
static const double SM_CLOCK_HZ = 1e9; /* of the cycles since reboot, whatever the clock is */

struct nvmlGpmSample_st { unsigned magic; const struct nvmlDevice_st *device; double at_s; };

static int live_samples;
EXPORT int nvml_double_live_samples(void) { return live_samples; } /* for a test of leaks */

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
  DEVICE(out);
  if (out->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  out->isSupportedDevice = (unsigned)device->gpm;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
  OPEN;
  FAILS(NULL);
  *out = calloc(1, sizeof **out);
  if (!*out) return NVML_ERROR_MEMORY;
  (*out)->magic = SAMPLE_MAGIC;
  live_samples++;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
  OPEN;
  FAILS(NULL);
  if (!sample || sample->magic != SAMPLE_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  sample->magic = 0;
  free(sample);
  live_samples--;
  return NVML_SUCCESS;
}

static nvmlReturn_t take(const struct nvmlDevice_st *device, nvmlGpmSample_t sample) {
  if (sample->magic != SAMPLE_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  if (!device->gpm) return NVML_ERROR_NOT_SUPPORTED;
  /* The driver refreshes its counters every 100 ms: a window within one sees no progress. */
  sample->at_s = (double)(long long)(clock_s() * 10 + 1e-9) / 10.0;
  sample->device = device;
  return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
  DEVICE(sample);
  return take(device, sample);
}
EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample) {
  DEVICE(sample);
  WHOLE;
  for (int n = 0; n < MAX_SLICES; n++)
    if (slice_exists(&device->slices[n], clock_s()) && device->slices[n].gi == gi) return take(&device->slices[n], sample);
  return NVML_ERROR_NOT_FOUND;
}

struct metric { unsigned id; enum quantity what; };
static const struct metric METRICS[] = {
    {1, Q_GR},       {2, Q_SM},       {3, Q_OCC},      {5, Q_TENSOR},  {6, Q_DFMA},    {7, Q_HMMA},
    {9, Q_IMMA},     {10, Q_DRAM},    {11, Q_FP64},    {12, Q_FP32},   {13, Q_FP16},   {20, Q_PCIE_TX},
    {21, Q_PCIE_RX}, {60, Q_NVL_RX},  {61, Q_NVL_TX},  {100, Q_C2C_TX}, {101, Q_C2C_RX}};

static int has(const struct nvmlDevice_st *d, enum quantity what) {
  if (what == Q_NVL_RX || what == Q_NVL_TX) return d->nvlink;
  if (what == Q_C2C_RX || what == Q_C2C_TX) return d->c2c;
  return 1;
}

/* Cumulative ones, since reboot: cycles elapsed and active, bytes over PCIe. */
static int since_reboot(const struct nvmlDevice_st *d, double t, nvmlGpmMetric_t *m) {
  if (!d->cumulative) return 0;
  switch (m->metricId) {
    case 248: m->value = t * SM_CLOCK_HZ; return 1;
    case 249: m->value = integral(d, Q_SM, 0, t) / 100 * SM_CLOCK_HZ; return 1;
    case 250: m->value = integral(d, Q_TENSOR, 0, t) / 100 * SM_CLOCK_HZ; return 1;
    case 255: m->value = integral(d, Q_PCIE_TX, 0, t) * (1 << 20); return 1;
    case 256: m->value = integral(d, Q_PCIE_RX, 0, t) * (1 << 20); return 1;
    default: return 0;
  }
}

static void fill(nvmlGpmMetric_t *m, const struct nvmlDevice_st *d, double from_s, double to_s) {
  memset(&m->metricInfo, 0, sizeof m->metricInfo);
  m->nvmlReturn = NVML_SUCCESS;
  for (size_t i = 0; i < sizeof METRICS / sizeof *METRICS; i++)
    if (METRICS[i].id == m->metricId && has(d, METRICS[i].what)) {
      m->value = integral(d, METRICS[i].what, from_s, to_s) / (to_s - from_s);
      return;
    }
  if (since_reboot(d, to_s, m)) return;
  m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  m->value = 0;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
  OPEN;
  if (!get || !get->sample1 || !get->sample2) return NVML_ERROR_INVALID_ARGUMENT;
  if (get->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const struct nvmlDevice_st *device = get->sample2->device;
  FAILS(device);
  double from_s = get->sample1->at_s, to_s = get->sample2->at_s;
  if (!get->numMetrics || get->numMetrics > NVML_GPM_METRIC_MAX || !device || get->sample1->device != device ||
      to_s <= from_s)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < get->numMetrics; i++)
    if (get->metrics[i].metricId > (unsigned)device->gpm_last) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < get->numMetrics; i++) fill(&get->metrics[i], device, from_s, to_s);
  return NVML_SUCCESS;
}
