#include "gpu/jobs/elf.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE
#endif

#define SECTIONS_MAX 4096u

struct image {
    const unsigned char *bytes;
    size_t length;
    const Elf64_Shdr *sections;
    uint32_t section_count;
};

struct table {
    const char *text; /* ends with a NUL */
    uint64_t size;
};

static int bad(struct error *error, const char *why)
{
    return error_set(error, ERR_BAD_CONFIG, "it is no module of a program: %s", why);
}

/* Bytes of a section that lie in the file; NULL: they do not, or are no whole number of `unit`. */
static const void *content(const struct image *image, const Elf64_Shdr *section, size_t unit,
                           uint64_t *ret_count)
{
    if (section->sh_type == SHT_NOBITS || section->sh_offset > image->length ||
        section->sh_size > image->length - section->sh_offset || section->sh_size % unit ||
        section->sh_offset % (unit > 1 ? 8 : 1))
        return NULL;
    *ret_count = section->sh_size / unit;
    return image->bytes + section->sh_offset;
}

static bool strings(const struct image *image, uint32_t number, struct table *ret)
{
    if (number >= image->section_count || image->sections[number].sh_type != SHT_STRTAB)
        return false;
    ret->text = content(image, &image->sections[number], 1, &ret->size);
    return ret->text && ret->size > 0 && ret->text[ret->size - 1] == '\0';
}

static const char *string_at(const struct table *table, uint64_t at)
{
    return at < table->size ? table->text + at : NULL;
}

static int open_image(const void *bytes, size_t length, struct image *image, struct error *error)
{
    const Elf64_Ehdr *header = bytes;
    if (length < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return bad(error, "not an ELF file");
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != MACHINE || header->e_type != ET_DYN)
        return bad(error, "not a shared object for this machine");
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff % 8 || header->e_shnum == 0 ||
        header->e_shnum > SECTIONS_MAX || header->e_shoff > length ||
        header->e_shnum > (length - header->e_shoff) / sizeof(Elf64_Shdr))
        return bad(error, "it has no table of sections");
    *image = (struct image){
        .bytes = bytes,
        .length = length,
        .sections = (const Elf64_Shdr *)(const void *)((const char *)bytes + header->e_shoff),
        .section_count = header->e_shnum};
    return 0;
}

/* ---- what it imports ---------------------------------------------------------------------------
 */

/* A name without the ending of calls that know a thread's default stream; whether it had one. */
static bool stem(const char *name, size_t *ret_length)
{
    size_t length = strlen(name);
    bool ending = length > 5 && (!strcmp(name + length - 5, "_ptsz") ||
                                 !strcmp(name + length - 5, "_ptds"));
    *ret_length = ending ? length - 5 : length;
    return ending;
}

static int check_import(const char *name, bool cuda, struct error *error)
{
    static const struct {
        const char *name, *why; /* NULL: plain */
        bool family;
    } forbidden[] = {
#define FORBIDDEN(name, why) {#name, why, false},
#define FAMILY(beginning, why) {#beginning, why, true},
#define PLAIN(name) {#name, NULL, false},
#include "gpu/jobs/forbidden.def"
#undef FORBIDDEN
#undef FAMILY
#undef PLAIN
    };
    size_t length;
    const bool ending = stem(name, &length);
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        const size_t compared = strlen(forbidden[i].name);
        if (compared > length || (compared < length && !forbidden[i].family) ||
            memcmp(forbidden[i].name, name, compared) != 0)
            continue;
        if (forbidden[i].why)
            return error_set(error, ERR_BAD_CONFIG, "it calls %.200s, which a program may not: %s",
                             name, forbidden[i].why);
        if (!ending)
            return error_set(error, ERR_BAD_CONFIG,
                             "it calls %.200s, which may mean the legacy default stream: compile it "
                             "with --default-stream per-thread",
                             name);
    }
    if (!cuda && !strncmp(name, "cuda", 4))
        return error_set(error, ERR_BAD_CONFIG, "it calls %.200s, and is for the CPU device", name);
    if (length > 2 && !strncmp(name, "cu", 2) && name[2] >= 'A' && name[2] <= 'Z')
        return error_set(error, ERR_BAD_CONFIG,
                         "it calls %.200s of CUDA's driver, which a program may not", name);
    return 0;
}

static int check_imports(const struct image *image, const Elf64_Shdr *section, bool cuda,
                         struct error *error)
{
    uint64_t count = 0;
    struct table names;
    const Elf64_Sym *symbols = content(image, section, sizeof(*symbols), &count);
    if (!symbols || !strings(image, section->sh_link, &names))
        return bad(error, "its table of symbols is broken");
    for (uint64_t i = 1; i < count; i++) {
        if (symbols[i].st_shndx != SHN_UNDEF)
            continue;
        const char *name = string_at(&names, symbols[i].st_name);
        int rc = name ? check_import(name, cuda, error) : bad(error, "a symbol has no name");
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- the runtime -------------------------------------------------------------------------------
 */

static int find_cudart(const struct image *image, const Elf64_Shdr *section, bool *ret_found,
                       struct error *error)
{
    uint64_t count = 0;
    struct table names;
    const Elf64_Dyn *entries = content(image, section, sizeof(*entries), &count);
    if (!entries || !strings(image, section->sh_link, &names))
        return bad(error, "its dynamic section is broken");
    for (uint64_t i = 0; i < count && entries[i].d_tag != DT_NULL; i++) {
        if (entries[i].d_tag != DT_NEEDED)
            continue;
        const char *name = string_at(&names, entries[i].d_un.d_val);
        if (!name)
            return bad(error, "a library has no name");
        if (!strncmp(name, "libcudart.so", 12) && strcmp(name, ELF_CUDART) != 0)
            return error_set(error, ERR_BAD_CONFIG, "it needs %.100s, this daemon has %s", name,
                             ELF_CUDART);
        *ret_found |= !strcmp(name, ELF_CUDART);
    }
    return 0;
}

/* Of the runtime's own code every function carries the mark. */
static int check_static(const struct image *image, struct error *error)
{
    static const char mark[] = "libcudart_static_";
    return memmem(image->bytes, image->length, mark, sizeof(mark) - 1)
               ? bad(error, "it has CUDA's runtime inside: link it with -cudart shared")
               : 0;
}

static bool is_device_code(const struct image *image, const struct table *names, uint32_t number)
{
    const char *name = string_at(names, image->sections[number].sh_name);
    return name && !strcmp(name, ".nv_fatbin");
}

int elf_check(const void *bytes, size_t length, int cuda, struct error *error)
{
    struct image image = {.bytes = NULL};
    struct table names;
    bool symbols = false, cudart = false, device_code = false;
    int rc = open_image(bytes, length, &image, error);
    if (!rc)
        rc = check_static(&image, error); /* what it calls in there is not the program's fault */
    if (rc)
        return rc;
    if (!strings(&image, ((const Elf64_Ehdr *)bytes)->e_shstrndx, &names))
        return bad(error, "its sections have no names");
    for (uint32_t i = 0; !rc && i < image.section_count; i++) {
        const Elf64_Shdr *section = &image.sections[i];
        device_code |= is_device_code(&image, &names, i);
        if (section->sh_type == SHT_DYNAMIC)
            rc = find_cudart(&image, section, &cudart, error);
        if (section->sh_type != SHT_DYNSYM)
            continue;
        symbols = true;
        rc = check_imports(&image, section, cuda, error);
    }
    if (!rc && !symbols)
        rc = bad(error, "it has no dynamic symbols");
    if (!rc && cuda && device_code && !cudart)
        rc = bad(error, "it has device code and does not need " ELF_CUDART);
    return rc;
}
