/* Device modules: which one `--device` means, and loading it.
 *
 * Before any other thread starts. A module stays loaded until the process ends.
 */
#pragma once

#include "daemon/base/option.h"
#include "gpu/gpu.h"
#include "protocol/base/error.h"

/* auto is the CPU only on a machine without any NVIDIA device node: with one, a driver that does
 * not work is an error and no slow service. `root` stands before "/dev", "" outside of tests. */
bool device_module_nvidia(const char *root);

/* Loads sluice-cuda.so or sluice-cpu.so from module-dir, or from where they are installed or built
 * beside the program. */
int device_module_load(const struct options *options, const struct gpu_api **ret_api, struct error *error);

/* The loaded module's lanes for jobs (gpu/jobs/gpu_jobs.h), opaque here. */
const void *device_module_jobs(void);

/* What of the options goes together with no devices, or with too many. */
int device_module_fits(const struct options *options, struct error *error);
/* The devices of all ranks, as the module counts them, from `gpus` or from dp * tp * pp; a count of 0
 * means all there are, numbered from 0. For CUDA it also leaves no other GPU visible to the process:
 * before device_module_load(). */
int device_module_choose(const struct options *options, int numbers[GPU_DEVICES_MAX], uint32_t *ret_count,
                  struct error *error);
/* The part of it without effects: what CUDA_VISIBLE_DEVICES is to be, from `gpus` and from what it
 * is (NULL: all GPUs in PCI order); need 0: as many as `gpus` names. */
#define DEVICE_LIST_MAX 2048
int device_module_visible(const char *gpus, uint32_t need, const char *visible, char list[DEVICE_LIST_MAX],
                   uint32_t *ret_count, struct error *error);
/* The least of those that are to be used. */
struct device_memory {
    uint64_t free_bytes, total_bytes;
};
/* Turns a count of 0 into that of the devices there are. ERR_BAD_CONFIG when one does not exist. */
int device_module_found(const struct gpu_api *api, const int *numbers, uint32_t *count,
                 struct device_memory *ret_memory, struct error *error);
/* What open() and check() of the module are given for one replica, tp and pp as the options say;
 * borrows from options and numbers. */
struct gpu_options device_module_options(const struct options *options, const int *numbers);
/* "NVIDIA H200 x2"; logs each device that is used. ERR_BAD_CONFIG when one does not exist. */
int device_module_describe(const struct gpu_api *api, const int *numbers, uint32_t count, char *name,
                    size_t size, struct error *error);
