#define _GNU_SOURCE
#include "profile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double FOREVER = 1e300;

static const char *QUANTITY_NAMES[Q_COUNT] = {
    "gr",      "sm",      "occ",     "tensor", "hmma",   "imma",     "dfma",     "dram",   "fp64",
    "fp32",    "fp16",    "pcie_tx", "pcie_rx", "nvl_tx", "nvl_rx",   "c2c_tx",   "c2c_rx", "gpu_util",
    "mem_util", "sm_clk", "mem_clk", "power_w", "temp",   "mem_used", "throttle"};

struct failure { char who[16], function[64]; int code; double from_s, to_s; };
struct slowness { char who[16], function[64]; double seconds, from_s, to_s; };
struct order { double from_s; int count, index[MAX_DEVICES]; };

char driver_version[81], nvml_version[81];
int cuda_version;

static struct nvmlDevice_st devices[MAX_DEVICES];
static struct failure failures[MAX_FAILURES];
static struct slowness slow[MAX_FAILURES];
static struct order orders[MAX_ORDERS];
static int device_count, failure_count, slow_count, order_count;

static double monotonic_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

double clock_s(void) {
  static double opened_s;
  if (opened_s == 0) opened_s = monotonic_s();
  const char *path = getenv("NVMLSIM_CLOCK");
  if (!path) return monotonic_s() - opened_s;
  double t = 0;
  int file = open(path, O_RDONLY);
  if (file < 0 || read(file, &t, sizeof t) != sizeof t) t = 0;
  if (file >= 0) close(file);
  return t;
}

/* The next key=value of a line, value bare or "quoted"; returns where to go on, NULL at the end. */
static char *next_pair(char *at, char key[32], char value[160]) {
  while (*at == ' ' || *at == '\t') at++;
  char *equals = strchr(at, '=');
  if (!equals) return NULL;
  snprintf(key, 32, "%.*s", (int)(equals - at), at);
  char *from = equals + 1, *to;
  if (*from == '"') {
    to = strchr(++from, '"');
    if (!to) return NULL;
    snprintf(value, 160, "%.*s", (int)(to - from), from);
    return to + 1;
  }
  to = from + strcspn(from, " \t\n");
  snprintf(value, 160, "%.*s", (int)(to - from), from);
  return to;
}

static void set_fact(struct nvmlDevice_st *d, const char *key, const char *value) {
  struct { const char *key; int *to; } numbers[] = {
      {"arch", &d->arch},       {"gpm", &d->gpm},         {"mig", &d->mig},
      {"c2c", &d->c2c},         {"nvlink", &d->nvlink},   {"accumulated", &d->accumulated},
      {"unified", &d->unified}, {"cumulative", &d->cumulative}, {"power_field", &d->power_field},
      {"gpm_last", &d->gpm_last}, {"value_type", &d->value_type}};
  struct { const char *key; unsigned *to; } sizes[] = {{"bus_width", &d->bus_width}, {"sm_max", &d->sm_max},
      {"mem_clk_max", &d->mem_clk_max}, {"cores", &d->cores}, {"gi", &d->gi}};
  struct { const char *key; double *to; } reals[] = {
      {"power_limit_w", &d->power_limit_w}, {"power_limit_min_w", &d->power_limit_min_w},
      {"power_limit_max_w", &d->power_limit_max_w}, {"throttle_unit", &d->throttle_unit},
      {"from", &d->from_s}, {"to", &d->to_s}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!strcmp(key, numbers[i].key)) *numbers[i].to = atoi(value);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (!strcmp(key, sizes[i].key)) *sizes[i].to = (unsigned)atoi(value);
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
    if (!strcmp(key, reals[i].key)) *reals[i].to = atof(value);
  if (!strcmp(key, "name")) snprintf(d->name, sizeof d->name, "%.95s", value);
  if (!strcmp(key, "uuid")) snprintf(d->uuid, sizeof d->uuid, "%.95s", value);
  if (!strcmp(key, "bus")) snprintf(d->bus, sizeof d->bus, "%.31s", value);
  if (!strcmp(key, "cc")) sscanf(value, "%d.%d", &d->cc_major, &d->cc_minor);
  if (!strcmp(key, "mem_total")) d->mem_total = strtoull(value, NULL, 0);
}

static void make_device(struct nvmlDevice_st *d, int index) {
  *d = (struct nvmlDevice_st){.magic = DEVICE_MAGIC, .index = index, .slice = -1, .arch = 9, .cc_major = 9, .gpm = 1,
      .gpm_last = 999, .nvlink = 1, .accumulated = 1, .power_field = 1, .bus_width = 6144, .sm_max = 1980, .mem_clk_max = 3201,
      .cores = 16896, .mem_total = 150754820096ULL, .power_limit_w = 700, .power_limit_min_w = 200,
      .power_limit_max_w = 700, .value_type = -1, .throttle_unit = 1e9, .to_s = FOREVER};
  snprintf(d->name, sizeof d->name, "NVIDIA H200");
  snprintf(d->uuid, sizeof d->uuid, "GPU-00000000-0000-0000-0000-%012d", index);
  snprintf(d->bus, sizeof d->bus, "00000000:%02X:00.0", index + 1);
  d->slices = calloc(MAX_SLICES, sizeof *d->slices);
  d->segments = calloc(MAX_SEGMENTS, sizeof *d->segments);
}

static void make_slice(struct nvmlDevice_st *parent, int number) {
  struct nvmlDevice_st *d = &parent->slices[number];
  *d = (struct nvmlDevice_st){.magic = DEVICE_MAGIC, .index = number, .slice = number, .parent = parent,
      .gi = (unsigned)number + 1, .gpm = parent->gpm, .gpm_last = 999, .mem_total = parent->mem_total / 8, .to_s = FOREVER};
  snprintf(d->name, sizeof d->name, "%s MIG 1g.18gb", parent->name);
  snprintf(d->uuid, sizeof d->uuid, "MIG-00000000-0000-0000-%04d-%012d", parent->index, number);
  d->segments = calloc(MAX_SEGMENTS, sizeof *d->segments);
}

static void set_facts(struct nvmlDevice_st *d, char *line) {
  char key[32], value[160];
  while ((line = next_pair(line, key, value))) set_fact(d, key, value);
}

/* WHO as I or I/N; NULL where there is no such device. */
static struct nvmlDevice_st *named(const char *who) {
  int index = -1, slice = -1, found = sscanf(who, "%d/%d", &index, &slice);
  if (found < 1 || !device_at(index)) return NULL;
  if (found < 2) return &devices[index];
  int there = slice >= 0 && slice < MAX_SLICES && devices[index].slices[slice].magic;
  return there ? &devices[index].slices[slice] : NULL;
}

static void add_segment(struct nvmlDevice_st *d, double from_s, char *line) {
  if (!d || d->segment_count >= MAX_SEGMENTS) return;
  struct segment *s = &d->segments[d->segment_count];
  if (d->segment_count) *s = d->segments[d->segment_count - 1];
  d->segment_count++;
  s->from_s = from_s;
  char key[32], value[160];
  while ((line = next_pair(line, key, value)))
    for (int q = 0; q < Q_COUNT; q++)
      if (!strcmp(key, QUANTITY_NAMES[q])) s->value[q] = strtod(value, NULL);
}

static void add_order(double from_s, char *line) {
  if (order_count >= MAX_ORDERS) return;
  struct order *o = &orders[order_count++];
  o->from_s = from_s;
  o->count = 0;
  for (char *saved = NULL, *word = strtok_r(line, " \t\n", &saved); word; word = strtok_r(NULL, " \t\n", &saved))
    if (o->count < MAX_DEVICES) o->index[o->count++] = atoi(word);
}

static void read_line(char *line) {
  char who[16], function[64];
  int index, number, code, rest = 0;
  double t, to_s, length_s;
  struct nvmlDevice_st *d;
  if (sscanf(line, "driver %80s", driver_version) == 1 || sscanf(line, "nvml %80s", nvml_version) == 1 ||
      sscanf(line, "cuda %d", &cuda_version) == 1)
    return;
  if (sscanf(line, "device %d %n", &index, &rest) == 1 && index >= 0 && index < MAX_DEVICES) {
    if (!devices[index].magic) make_device(&devices[index], index);
    if (index >= device_count) device_count = index + 1;
    set_facts(&devices[index], line + rest);
  } else if (sscanf(line, "mig %d %d %n", &index, &number, &rest) == 2 && device_at(index) && number >= 0 &&
             number < MAX_SLICES) {
    devices[index].mig = 1;
    if (!devices[index].slices[number].magic) make_slice(&devices[index], number);
    set_facts(&devices[index].slices[number], line + rest);
  } else if (sscanf(line, "at %lf %15s %n", &t, who, &rest) == 2) {
    if (strcmp(who, "*")) add_segment(named(who), t, line + rest);
    else for (index = 0; index < device_count; index++) add_segment(device_at(index), t, line + rest);
  } else if (sscanf(line, "proc %15s %d", who, &number) == 2) {
    if ((d = named(who)) && d->pid_count < MAX_PIDS) d->pids[d->pid_count++] = number;
  } else if (sscanf(line, "slow %15s %63s %lf %lf %lf", who, function, &length_s, &t, &to_s) == 5) {
    if (slow_count >= MAX_FAILURES) return;
    struct slowness *s = &slow[slow_count++];
    s->seconds = length_s, s->from_s = t, s->to_s = to_s;
    snprintf(s->who, sizeof s->who, "%s", who);
    snprintf(s->function, sizeof s->function, "%s", function);
  } else if (sscanf(line, "order %lf %n", &t, &rest) == 1) {
    add_order(t, line + rest);
  } else {
    t = 0, to_s = FOREVER;
    if (sscanf(line, "fail %15s %63s %d %lf %lf", who, function, &code, &t, &to_s) >= 3 && failure_count < MAX_FAILURES) {
      struct failure *f = &failures[failure_count++];
      f->code = code, f->from_s = t, f->to_s = to_s;
      snprintf(f->who, sizeof f->who, "%s", who);
      snprintf(f->function, sizeof f->function, "%s", function);
    }
  }
}

static void forget_profile(void) {
  for (int i = 0; i < MAX_DEVICES; i++) {
    for (int n = 0; devices[i].slices && n < MAX_SLICES; n++) free(devices[i].slices[n].segments);
    free(devices[i].slices);
    free(devices[i].segments);
  }
  memset(devices, 0, sizeof devices);
  device_count = failure_count = slow_count = order_count = 0;
  snprintf(driver_version, sizeof driver_version, "580.82");
  snprintf(nvml_version, sizeof nvml_version, "13.580.82");
  cuda_version = 13000;
}

int read_profile(void) {
  const char *path = getenv("NVMLSIM_PROFILE");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (!file) return -1;
  forget_profile();
  char line[2048];
  while (fgets(line, sizeof line, file))
    if (line[0] != '#' && line[0] != '\n') read_line(line);
  fclose(file);
  char nothing[1] = "";
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (devices[i].magic && !devices[i].segment_count) add_segment(&devices[i], 0, nothing);
    for (int n = 0; devices[i].magic && n < MAX_SLICES; n++)
      if (devices[i].slices[n].magic && !devices[i].slices[n].segment_count)
        add_segment(&devices[i].slices[n], 0, nothing);
  }
  return 0;
}

struct nvmlDevice_st *device_at(int index) {
  return index >= 0 && index < MAX_DEVICES && devices[index].magic ? &devices[index] : NULL;
}

static const struct order *order_at(double t) {
  const struct order *found = NULL;
  for (int i = 0; i < order_count; i++)
    if (orders[i].from_s <= t) found = &orders[i];
  return found;
}

int listed_at(double t, int indices[MAX_DEVICES]) {
  int count = 0;
  const struct order *o = order_at(t);
  for (int i = 0; o && i < o->count; i++)
    if (device_at(o->index[i])) indices[count++] = o->index[i];
  for (int i = 0; !o && i < device_count; i++)
    if (device_at(i)) indices[count++] = i;
  return count;
}

static int holds(const struct order *o, int index) {
  for (int i = 0; i < o->count; i++)
    if (o->index[i] == index) return 1;
  return 0;
}

int gone_between(const struct nvmlDevice_st *device, double from_s, double to_s) {
  int index = device->parent ? device->parent->index : device->index;
  for (int i = 0; i < order_count; i++) {
    double end_s = i + 1 < order_count ? orders[i + 1].from_s : FOREVER;
    if (orders[i].from_s <= to_s && end_s > from_s && !holds(&orders[i], index)) return 1;
  }
  return 0;
}

int slice_exists(const struct nvmlDevice_st *slice, double t) {
  return slice->magic && slice->from_s <= t && t < slice->to_s;
}

const double *quantities(const struct nvmlDevice_st *device) {
  double t = clock_s();
  int i = 0;
  while (i + 1 < device->segment_count && device->segments[i + 1].from_s <= t) i++;
  return device->segments[i].value;
}

/* Seconds of segment i that lie in [from_s, to_s]; before the first segment there is nothing. */
static double overlap_s(const struct nvmlDevice_st *d, int i, double from_s, double to_s) {
  double start = d->segments[i].from_s, end = i + 1 < d->segment_count ? d->segments[i + 1].from_s : FOREVER;
  if (start < from_s) start = from_s;
  if (end > to_s) end = to_s;
  return end > start ? end - start : 0;
}

double integral(const struct nvmlDevice_st *d, enum quantity what, double from_s, double to_s) {
  double sum = 0;
  for (int i = 0; i < d->segment_count; i++) {
    double s = overlap_s(d, i, from_s, to_s);
    if (s > 0) sum += d->segments[i].value[what] * s;
  }
  return sum;
}

double throttled_s(const struct nvmlDevice_st *d, unsigned long long bit, double to_s) {
  double sum = 0;
  for (int i = 0; i < d->segment_count; i++)
    if ((unsigned long long)d->segments[i].value[Q_THROTTLE] & bit) sum += overlap_s(d, i, 0, to_s);
  return sum;
}

static int meant(const char *who, const char *function, const struct nvmlDevice_st *device, const char *called) {
  return (!strcmp(who, "*") || (device && named(who) == device)) && !strcmp(function, called);
}

/* Let the time pass that a call takes: the clock is the test's file. */
static void take_time(const struct nvmlDevice_st *device, const char *function) {
  const char *path = getenv("NVMLSIM_CLOCK");
  double t = clock_s();
  for (int i = 0; path && i < slow_count; i++) {
    const struct slowness *s = &slow[i];
    if (!meant(s->who, s->function, device, function) || t < s->from_s || t >= s->to_s) continue;
    t += s->seconds;
    FILE *file = fopen(path, "r+b");
    if (!file) return;
    fwrite(&t, sizeof t, 1, file);
    fclose(file);
    return;
  }
}

int failure_of(const struct nvmlDevice_st *device, const char *function) {
  if (slow_count) take_time(device, function);
  double t = clock_s();
  for (int i = 0; i < failure_count; i++) {
    const struct failure *f = &failures[i];
    if (meant(f->who, f->function, device, function) && f->from_s <= t && t < f->to_s) return f->code;
  }
  return 0;
}
