#include "daemon/worker/device_module.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
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

bool device_module_nvidia(const char *root)
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
    bool cpu = options->device == DEVICE_CPU ||
               (options->device == DEVICE_AUTO && !device_module_nvidia(""));
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

/* dlopen() says why in words alone: whether any file can be opened now, as errno or 0. */
static int open_fails(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int why = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return why;
}

static void *loaded;

const void *device_module_jobs(void)
{
    return loaded ? dlsym(loaded, "gpu_jobs") : NULL;
}

int device_module_load(const struct options *options, const struct gpu_api **ret_api,
                       struct error *error)
{
    char path[MODULE_PATH_MAX];
    const char *name = module_name(options);
    int rc = find_module(options, name, path, sizeof(path), error);
    if (rc)
        return rc;
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        int why = open_fails();
        return error_set(error, error_of_system(why, ERR_BAD_CONFIG), "cannot load %s: %.300s",
                         name, dlerror());
    }
    const struct gpu_api *api = dlsym(module, "gpu_module");
    if (!api)
        return error_set(error, ERR_BAD_CONFIG, "%.256s is no device module", path);
    if (api->abi != GPU_ABI)
        return error_set(error, ERR_BAD_CONFIG,
                         "%.256s has interface version %u, this daemon needs %u: "
                         "install packages of the same version",
                         path, api->abi, GPU_ABI);
    loaded = module;
    *ret_api = api;
    return 0;
}

/* ---- which GPUs --------------------------------------------------------------------------------
 */

#define ENTRY_MAX 96 /* "MIG-GPU-", a UUID, "/", two numbers: below 64 */

/* The entry at *text up to the next comma, without blanks around it; moves behind it. False at the end, or past ENTRY_MAX. */
static bool next_entry(const char **text, char entry[ENTRY_MAX])
{
    size_t whole = strcspn(*text, ","), blank = strspn(*text, " "), length = whole;
    while (length > blank && (*text)[length - 1] == ' ')
        length--;
    if (length <= blank || length - blank >= ENTRY_MAX)
        return false;
    memcpy(entry, *text + blank, length - blank);
    entry[length - blank] = '\0';
    *text += whole;
    if (**text == ',' && (*text)[1])
        ++*text;
    return true;
}

static bool is_number(const char *entry)
{
    size_t digits = strspn(entry, "0123456789");
    return entry[digits] == '\0' && digits <= 3;
}

/* As nvidia-smi -L prints them; which of them exist, the driver knows. */
static bool is_uuid(const char *entry)
{
    bool known = strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0;
    return known && entry[4] && entry[strspn(entry, "0123456789abcdefABCDEFGPUMI-/")] == '\0';
}

/* How many there are; `need` 0: any number, and none means all. */
static int read_entries(const char *text, uint32_t need, char (*entries)[ENTRY_MAX],
                        uint32_t *ret_count, struct error *error)
{
    uint32_t count = 0;
    for (; *text; count++) {
        char entry[ENTRY_MAX];
        bool good = next_entry(&text, entry) && (is_number(entry) || is_uuid(entry));
        if (!good)
            return error_set(error, ERR_BAD_CONFIG,
                             "gpus: numbers, GPU-... or MIG-... UUIDs, with commas between");
        if (count == GPU_DEVICES_MAX)
            return error_limit(error, ERR_BAD_CONFIG, GPU_DEVICES_MAX, count + 1,
                               "gpus: at most %d are used", GPU_DEVICES_MAX);
        for (uint32_t i = 0; i < count; i++)
            if (strcmp(entries[i], entry) == 0)
                return error_set(error, ERR_BAD_CONFIG, "gpus: %s stands there twice", entry);
        memcpy(entries[count], entry, sizeof(entry));
    }
    if (count > 0 && need > 0 && count != need)
        return error_set(error, ERR_BAD_CONFIG, "gpus: %u given, dp * tp * pp is %u", count, need);
    for (; count < need; count++)
        snprintf(entries[count], ENTRY_MAX, "%u", count);
    *ret_count = count;
    return 0;
}

/* A number counts within what CUDA_VISIBLE_DEVICES leaves to this process. */
static int look_up(const char *visible, char entry[ENTRY_MAX], struct error *error)
{
    char found[ENTRY_MAX];
    if (!visible || !is_number(entry))
        return 0;
    for (unsigned long skip = strtoul(entry, NULL, 10);; skip--) {
        if (!*visible || !next_entry(&visible, found))
            return error_set(error, ERR_BAD_CONFIG,
                             "gpus: CUDA_VISIBLE_DEVICES leaves no number %s to this process",
                             entry);
        if (skip == 0)
            break;
    }
    memcpy(entry, found, sizeof(found));
    return 0;
}

int device_module_visible(const char *gpus, uint32_t need, const char *visible,
                          char list[DEVICE_LIST_MAX], uint32_t *ret_count, struct error *error)
{
    char entries[GPU_DEVICES_MAX][ENTRY_MAX];
    size_t used = 0;
    uint32_t count = 0;
    _Static_assert(GPU_DEVICES_MAX * ENTRY_MAX <= DEVICE_LIST_MAX, "all entries find room");
    int rc = read_entries(gpus, need, entries, &count, error);
    list[0] = '\0';
    for (uint32_t i = 0; !rc && i < count; i++) {
        rc = look_up(visible, entries[i], error);
        if (!rc)
            used += (size_t)snprintf(list + used, DEVICE_LIST_MAX - used, "%s%s", i ? "," : "",
                                     entries[i]);
    }
    if (!rc)
        *ret_count = count;
    return rc;
}

static int choose_cpu(const struct options *options, uint32_t need, int *numbers,
                      uint32_t *ret_count, struct error *error)
{
    char entries[GPU_DEVICES_MAX][ENTRY_MAX];
    int rc = read_entries(options->gpus, need, entries, ret_count, error);
    for (uint32_t i = 0; !rc && i < *ret_count; i++) {
        if (!is_number(entries[i]))
            return error_set(error, ERR_BAD_CONFIG, "gpus: the CPU device has no %s", entries[i]);
        numbers[i] = (int)strtol(entries[i], NULL, 10);
    }
    return rc;
}

int device_module_fits(const struct options *options, struct error *error)
{
    uint64_t need = options->dp * options->tp * options->pp;
    if (need > GPU_DEVICES_MAX)
        return error_limit(error, ERR_BAD_CONFIG, GPU_DEVICES_MAX, need,
                           "dp * tp * pp is %u devices, at most %d are used", (unsigned)need,
                           GPU_DEVICES_MAX);
    if (options->speculate != SPECULATE_NO && options->pp > 1)
        return error_set(error, ERR_BAD_CONFIG,
                         "speculate: not with pp above 1, where a sequence waits for its stages");
    if ((options->speculate == SPECULATE_DRAFT) != (options->draft_model[0] != '\0'))
        return error_set(error, ERR_BAD_CONFIG,
                         options->draft_model[0]
                             ? "draft-model: guesses only with speculate = draft"
                             : "speculate: draft wants a draft-model");
    if (options->speculate != SPECULATE_NO && options->sequences_max == 1)
        return error_set(error, ERR_BAD_CONFIG,
                         "speculate: guesses take the rows of sequences that are not there: not "
                         "with sequences-max = 1");
    return 0;
}

int device_module_choose(const struct options *options, int numbers[GPU_DEVICES_MAX],
                         uint32_t *ret_count, struct error *error)
{
    char list[DEVICE_LIST_MAX];
    uint64_t need = options->dp * options->tp * options->pp; /* 0: something is left to us */
    int rc = device_module_fits(options, error);
    if (rc)
        return rc;
    for (int i = 0; i < GPU_DEVICES_MAX; i++)
        numbers[i] = i;
    if (strcmp(module_name(options), "sluice-cpu.so") == 0)
        return choose_cpu(options, (uint32_t)need, numbers, ret_count, error);
    rc = device_module_visible(options->gpus, (uint32_t)need, getenv("CUDA_VISIBLE_DEVICES"), list,
                               ret_count, error);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    /* The one way to a MIG instance; and no context is made on a GPU that is not ours. */
    if (!rc && *ret_count > 0)
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
    return rc;
}

int device_module_found(const struct gpu_api *api, const int *numbers, uint32_t *count,
                        struct device_memory *ret_memory, struct error *error)
{
    struct gpu_device devices[GPU_DEVICES_MAX];
    uint32_t found = 0;
    int rc = api->devices(devices, GPU_DEVICES_MAX, &found, error);
    if (rc)
        return rc;
    if (found > GPU_DEVICES_MAX)
        found = GPU_DEVICES_MAX;
    if (*count == 0)
        *count = found;
    if (*count == 0)
        return error_set(error, ERR_DEVICE, "there is no device");
    struct device_memory least = {UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < *count; i++) {
        const uint32_t number = (uint32_t)numbers[i];
        if (number >= found)
            return error_set(error, ERR_BAD_CONFIG, "gpus: device %u of %u is not there", number,
                             found);
        if (devices[number].memory_free < least.free_bytes)
            least.free_bytes = devices[number].memory_free;
        if (devices[number].memory_total < least.total_bytes)
            least.total_bytes = devices[number].memory_total;
    }
    *ret_memory = least;
    return 0;
}

/* gpu's levels are log.h's. */
static void log_device(enum gpu_log_level level, const char *line)
{
    _Static_assert((int)GPU_LOG_WARNING == LOG_WARNING && (int)GPU_LOG_DEBUG == LOG_DEBUG,
                   "the same numbers");
    log_line((enum log_level)level, "device", "%s", line);
}

struct gpu_options device_module_options(const struct options *options, const int *numbers)
{
    return (struct gpu_options){
        .model = options->model,
        .draft_model = options->draft_model[0] ? options->draft_model : NULL,
        .devices = numbers,
        .dtype = (enum gpu_dtype)options->dtype, /* its words stand in this order */
        .quantize = (enum gpu_quantize)options->quantize, /* likewise */
        .kv_dtype = (enum gpu_kv_dtype)options->kv_dtype, /* likewise */
        .invariant = options->invariant,
        .adapters_max = (uint32_t)options->adapters_max,
        .adapter_rank_max = (uint32_t)options->adapter_rank_max,
        .tp = (uint32_t)options->tp,
        .pp = (uint32_t)options->pp,
        .ep = options->ep,
        .depth = (uint32_t)options->steps_in_flight,
        .slots_max = (uint32_t)options->sequences_max,
        .tokens_max = (uint32_t)options->step_tokens,
        .context_max = (uint32_t)options->context_max,
        .block_tokens = (uint32_t)options->block_tokens,
        .slab_bytes = options->slab_size,
        .memory_max = options->gpu_memory_max,
        .memory_reserve = options->gpu_memory_reserve,
        .kv_max = options->kv_max,
        .host_max = options->prefix_cache ? options->host_cache : 0, /* or GPU_HOST_AUTO */
        .seed = options->seed,
        .cpu_threads = (uint32_t)options->cpu_threads,
        .cpu_devices = (uint32_t)options->cpu_devices,
        .profile_steps = (uint32_t)options->profile_steps,
        .cache_dir = options->cache_dir[0] ? options->cache_dir : NULL,
        .log = log_device,
    };
}

int device_module_describe(const struct gpu_api *api, const int *numbers, uint32_t count,
                           char *name, size_t size, struct error *error)
{
    struct gpu_device devices[GPU_DEVICES_MAX];
    uint32_t found = 0;
    int rc = api->devices(devices, GPU_DEVICES_MAX, &found, error);
    for (uint32_t i = 0; !rc && i < count; i++) {
        const uint32_t number = (uint32_t)numbers[i];
        if (number >= found || number >= GPU_DEVICES_MAX)
            return error_set(error, ERR_BAD_CONFIG, "gpus: device %u of %u is not there", number,
                             found);
        log_line(LOG_INFO, "device", "%u: %s, %s, PCI %s", i, devices[number].name,
                 devices[number].uuid, devices[number].pci);
    }
    if (rc)
        return rc;
    const char *model = devices[numbers[0]].name;
    if (count > 1)
        snprintf(name, size, "%.63s x%u", model, count);
    else
        snprintf(name, size, "%.63s", model);
    return 0;
}
