/* What the double plays: devices, how their quantities move over time, and what fails when.
 *
 * A profile is a text file (environment NVMLSIM_PROFILE), read at each nvmlInit that opens the library. One statement
 * a line, # begins a comment; times are seconds of the double's clock:
 *   driver 580.82 | nvml 13.580.82 | cuda 13000
 *   device I key=value ...       device I and its facts: name uuid bus arch cc mem_total bus_width sm_max mem_clk_max
 *                                power_limit_w power_limit_min_w power_limit_max_w (0: not told) cores throttle_unit=1e9
 *                                (of accumulated times, a second; 1e6: microseconds) value_type=-1 (of energy by field: an unknown
 *                                one), and what it can do: gpm=1 mig=0
 *                                c2c=0 nvlink=1 accumulated=1 power_field=1 cumulative=0 unified=0 gpm_last=999
 *                                (the last GPM id that the library knows: it refuses a request with a later one)
 *   mig I N key=value ...        slice N of device I: gi uuid name mem_total from to (it exists between these times)
 *   at T WHO key=value ...       from T on the quantities of WHO: I, I/N for a slice, or * for all whole devices
 *   fail WHO FUNCTION CODE [FROM TO]   what an exported function returns for WHO; a function of no device knows only *
 *   slow WHO FUNCTION SECONDS FROM TO   how long a call of it takes that begins between these times: it moves the clock
 *   proc WHO PID                 a process that computes there
 *   order T I J ...              from T on these devices are there, in this order; all others are gone
 * Quantities are piecewise constant, so that the mean of a window is exact: gr sm occ tensor hmma imma dfma dram fp64
 * fp32 fp16 (percent), pcie_tx pcie_rx nvl_tx nvl_rx c2c_tx c2c_rx (MiB/s), gpu_util mem_util (percent), sm_clk
 * mem_clk (MHz), power_w, temp, mem_used (bytes), throttle (bit mask). "nan" is a value too.
 *
 * The clock (environment NVMLSIM_CLOCK) is the path of a file of eight bytes, a little-endian double that a test
 * moves; without it seconds since the library was opened. */
#ifndef NVML_DOUBLE_PROFILE_H
#define NVML_DOUBLE_PROFILE_H
#include <nvml.h>

#define EXPORT __attribute__((visibility("default")))
#define DEVICE_MAGIC 0x4e564d4cu

enum quantity {
  Q_GR, Q_SM, Q_OCC, Q_TENSOR, Q_HMMA, Q_IMMA, Q_DFMA, Q_DRAM, Q_FP64, Q_FP32, Q_FP16,
  Q_PCIE_TX, Q_PCIE_RX, Q_NVL_TX, Q_NVL_RX, Q_C2C_TX, Q_C2C_RX,
  Q_GPU_UTIL, Q_MEM_UTIL, Q_SM_CLK, Q_MEM_CLK, Q_POWER, Q_TEMP, Q_MEM_USED, Q_THROTTLE, Q_COUNT
};

enum { MAX_DEVICES = 16, MAX_SLICES = 8, MAX_SEGMENTS = 512, MAX_FAILURES = 64, MAX_PIDS = 16, MAX_ORDERS = 16 };

struct segment { double from_s, value[Q_COUNT]; };

struct nvmlDevice_st {
  unsigned magic;
  int index, slice;                /* slice: -1 for a whole device */
  struct nvmlDevice_st *parent;    /* NULL for a whole device */
  struct nvmlDevice_st *slices;    /* MAX_SLICES of them, for a whole device */
  char name[96], uuid[96], bus[32];
  int arch, cc_major, cc_minor;
  int gpm, mig, c2c, nvlink, accumulated, power_field, cumulative, unified, gpm_last, value_type;
  unsigned bus_width, sm_max, mem_clk_max, cores, gi;
  unsigned long long mem_total;
  double power_limit_w, power_limit_min_w, power_limit_max_w, throttle_unit, from_s, to_s;
  struct segment *segments;
  int segment_count, pids[MAX_PIDS], pid_count;
};

extern char driver_version[81], nvml_version[81];
extern int cuda_version;

double clock_s(void);
int read_profile(void);                                       /* 0, or -1 without a profile */
struct nvmlDevice_st *device_at(int index);                   /* NULL where the profile has none */
int listed_at(double t, int indices[MAX_DEVICES]);            /* the devices that are there, in order; their number */
int gone_between(const struct nvmlDevice_st *device, double from_s, double to_s);
int slice_exists(const struct nvmlDevice_st *slice, double t);
const double *quantities(const struct nvmlDevice_st *device); /* those in force now */
double integral(const struct nvmlDevice_st *device, enum quantity what, double from_s, double to_s);
double throttled_s(const struct nvmlDevice_st *device, unsigned long long bit, double to_s);
int failure_of(const struct nvmlDevice_st *device, const char *function); /* an nvmlReturn code, 0 for none */
#endif
