#include "daemon/device.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/base/log.h"

#define MODULE_PATH_MAX 4200

/* nvidiactl, nvidia0, ...; WSL has dxg instead. nvidia-uvm alone is no device. */
static bool names_device(const char *name)
{
    return strcmp(name, "nvidiactl") == 0 || strcmp(name, "dxg") == 0 ||
           (strncmp(name, "nvidia", 6) == 0 && isdigit((unsigned char)name[6]));
}

bool device_nvidia(const char *root)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/dev", root);
    DIR *directory = opendir(path);
    bool found = false;
    struct dirent *entry;
    while (directory && !found && (entry = readdir(directory)))
        found = names_device(entry->d_name);
    if (directory)
        closedir(directory);
    return found;
}

static const char *module_name(const struct options *options)
{
    bool cpu =
        options->device == DEVICE_CPU || (options->device == DEVICE_AUTO && !device_nvidia(""));
    return cpu ? "sluice-cpu.so" : "sluice-cuda.so";
}

/* The program's own directory, without its last "/". */
static void program_directory(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
}

static int find_module(const struct options *options, const char *name, char *path, size_t size,
                       struct error *error)
{
    /* Beside the program, as built, as installed below the same prefix. */
    static const char *const places[] = {"", "/../gpu", ("/../" SLUICE_MODULE_DIR)};
    char base[2048];
    if (options->module_dir[0]) {
        snprintf(path, size, "%s/%s", options->module_dir, name);
        return access(path, R_OK) == 0
                   ? 0
                   : error_set(error, ERR_BAD_CONFIG, "cannot read %.256s (module-dir)", path);
    }
    program_directory(base, sizeof(base));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, size, "%s%s/%s", base, places[i], name);
        if (access(path, R_OK) == 0)
            return 0;
    }
    bool nvidia = strcmp(name, "sluice-cuda.so") == 0;
    return error_set(error, ERR_BAD_CONFIG, "there is no %s beside %.256s%s", name, base,
                     nvidia ? "; install the CUDA package, or use --device cpu" : "");
}

int device_load(const struct options *options, const struct gpu_api **ret_api, struct error *error)
{
    char path[MODULE_PATH_MAX];
    const char *name = module_name(options);
    int rc = find_module(options, name, path, sizeof(path), error);
    if (rc)
        return rc;
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return error_set(error, ERR_BAD_CONFIG, "cannot load %s: %.300s", name, dlerror());
    const struct gpu_api *api = dlsym(module, "gpu_module");
    if (!api)
        return error_set(error, ERR_BAD_CONFIG, "%.256s is no device module", path);
    if (api->abi != GPU_ABI)
        return error_set(error, ERR_BAD_CONFIG,
                         "%.256s has interface version %u, this daemon needs %u: "
                         "install packages of the same version",
                         path, api->abi, GPU_ABI);
    *ret_api = api;
    return 0;
}

int device_numbers(const struct options *options, int numbers[GPU_DEVICES_MAX], uint32_t *ret_count,
                   struct error *error)
{
    uint64_t need = options->tp * options->pp, count = 0;
    const char *text = options->devices;
    if (need > GPU_DEVICES_MAX)
        return error_limit(error, ERR_BAD_CONFIG, GPU_DEVICES_MAX, need,
                           "tp * pp is %u devices, at most %d are used", (unsigned)need,
                           GPU_DEVICES_MAX);
    for (; *text; text += *text == ',') {
        char *end;
        long number = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || number < 0 || number > 1023 ||
            !isdigit((unsigned char)*text) || count == need)
            return error_set(error, ERR_BAD_CONFIG,
                             "devices: %u numbers with commas between are expected",
                             (unsigned)need);
        numbers[count++] = (int)number;
        text = end;
    }
    if (count > 0 && count != need)
        return error_set(error, ERR_BAD_CONFIG, "devices: %u given, tp * pp is %u", (unsigned)count,
                         (unsigned)need);
    for (; count < need; count++)
        numbers[count] = (int)count;
    *ret_count = (uint32_t)need;
    return 0;
}

/* gpu's levels are log.h's. */
static void log_device(enum gpu_log_level level, const char *line)
{
    _Static_assert((int)GPU_LOG_WARNING == LOG_WARNING && (int)GPU_LOG_DEBUG == LOG_DEBUG,
                   "the same numbers");
    log_line((enum log_level)level, "device", "%s", line);
}

struct gpu_options device_options(const struct options *options, const int *numbers)
{
    return (struct gpu_options){
        .model = options->model,
        .devices = numbers,
        .tp = (uint32_t)options->tp,
        .pp = (uint32_t)options->pp,
        .depth = (uint32_t)options->steps_in_flight,
        .slots_max = (uint32_t)options->sequences_max,
        .tokens_max = (uint32_t)options->step_tokens,
        .context_max = (uint32_t)options->context_max,
        .block_tokens = (uint32_t)options->block_tokens,
        .slab_bytes = options->slab_size,
        .memory_max = options->memory_max,
        .memory_reserve = options->memory_reserve,
        .kv_max = options->kv_max,
        .seed = options->seed,
        .cpu_threads = (uint32_t)options->cpu_threads,
        .cache_dir = options->cache_dir[0] ? options->cache_dir : NULL,
        .log = log_device,
    };
}

void device_name_of(const struct gpu_api *api, const int *numbers, uint32_t count, char *name,
                    size_t size)
{
    struct gpu_device devices[GPU_DEVICES_MAX];
    uint32_t found = 0;
    const char *model = api->name;
    if (api->devices(devices, GPU_DEVICES_MAX, &found, NULL) == 0 && numbers[0] >= 0 &&
        (uint32_t)numbers[0] < found && (uint32_t)numbers[0] < GPU_DEVICES_MAX)
        model = devices[numbers[0]].name;
    if (count > 1)
        snprintf(name, size, "%.63s x%u", model, count);
    else
        snprintf(name, size, "%.63s", model);
}
