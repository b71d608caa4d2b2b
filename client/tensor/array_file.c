#include "client/tensor/array_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensor/npy.h"
#include "client/tensor/png.h"

#define STEP (1u << 20) /* memory grows with what comes, not with what a header announces */

/* Up to `size` bytes, fewer at the end of the file. */
static int read_some(int fd, void *to, size_t size, size_t *ret_got, struct error *error)
{
    size_t got = 0;
    while (got < size) {
        ssize_t more = read(fd, (char *)to + got, size - got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return error_set(error, ERR_IO, "%s", strerrordesc_np(errno));
        if (more == 0)
            break;
        got += (size_t)more;
    }
    *ret_got = got;
    return 0;
}

/* All `bytes` of data, of which the first `have` lie in `begun`. */
static int read_data(int fd, const unsigned char *begun, size_t have, uint64_t bytes,
                     void **ret_data, struct error *error)
{
    unsigned char *data = NULL;
    size_t room = 0, used = 0;
    int rc = 0;
    while (!rc && used < bytes) {
        size_t got = 0;
        room = room ? 2 * room : (have > STEP ? have : STEP);
        room = room < bytes ? room : (size_t)bytes;
        unsigned char *grown = realloc(data, room);
        if (!grown) {
            rc = error_set(error, ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes", bytes);
            break;
        }
        data = grown;
        if (used == 0)
            memcpy(data, begun, have);
        used = used ? used : have;
        rc = read_some(fd, data + used, room - used, &got, error);
        used += got;
        if (!rc && used < room)
            rc =
                error_limit(error, ERR_BAD_VALUE, bytes, used,
                            "it has %zu bytes of data, its header announces %" PRIu64, used, bytes);
    }
    if (rc)
        free(data);
    else
        *ret_data = data;
    return rc;
}

/* Of a file whose size is known before it is read. */
static int check_size(int fd, struct error *error)
{
    struct stat status;
    bool known = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    return known ? png_fits((uint64_t)status.st_size, error) : 0;
}

/* An image, of whose file the first `have` bytes lie in `begun`: all of the file, then its pixels.
 */
static int read_image(int fd, const unsigned char *begun, size_t have, sluice_array *array,
                      void **ret_data, struct error *error)
{
    size_t room = 0, used = 0, got = 0;
    unsigned char *file = NULL;
    int rc = check_size(fd, error);
    while (!rc && used == room && used <= PNG_FILE_MAX) {
        room = room ? 2 * room : have + STEP;
        room = room <= PNG_FILE_MAX ? room : PNG_FILE_MAX + 1; /* the last says: too large */
        unsigned char *grown = realloc(file, room);
        if (!grown) {
            rc = error_set(error, ERR_NO_MEMORY, "no memory for a file of more than %zu bytes",
                           used);
            break;
        }
        file = grown;
        if (used == 0)
            memcpy(file, begun, have);
        used = used ? used : have;
        rc = read_some(fd, file + used, room - used, &got, error);
        used += got;
    }
    if (!rc)
        rc = png_decode(file, used, array, ret_data, error);
    free(file);
    return rc;
}

static int read_array(int fd, sluice_array *array, void **ret_data, struct error *error)
{
    unsigned char *begun = malloc(NPY_HEADER_MAX), beyond;
    size_t length = 0, used = 0, more = 0;
    if (!begun)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    int rc = read_some(fd, begun, NPY_HEADER_MAX, &length, error);
    if (!rc && png_begins(begun, length)) {
        rc = read_image(fd, begun, length, array, ret_data, error);
        free(begun);
        return rc;
    }
    if (!rc)
        rc = npy_parse(begun, length, array, &used, error);
    uint64_t bytes = rc ? 0 : sluice_array_bytes(array);
    bool over = !rc && length - used > bytes;
    if (!rc && !over)
        rc = read_data(fd, begun + used, length - used, bytes, ret_data, error);
    free(begun);
    if (!rc && !over && !(rc = read_some(fd, &beyond, 1, &more, error)))
        over = more > 0;
    if (!rc && over)
        rc = error_set(error, ERR_BAD_VALUE, "there is more data than its header announces");
    return rc;
}

int array_read(const char *path, sluice_array *ret_array, void **ret_data, struct error *error)
{
    struct error why;
    void *data = NULL;
    sluice_array array;
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? error_set(&why, ERR_IO, "%s", strerrordesc_np(errno))
                    : read_array(fd, &array, &data, &why);
    if (fd >= 0 && !standard)
        close(fd);
    if (rc) {
        free(data);
        return error_limit(error, why.code, why.limit, why.value, "%.200s: %s", path, why.text);
    }
    array.data = data;
    *ret_array = array;
    *ret_data = data;
    return 0;
}

static int write_all(int fd, const void *bytes, uint64_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t written = write(fd, at, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        at += written;
        length -= (uint64_t)written;
    }
    return 0;
}

/* Both pieces, one behind the other. */
static int write_file(const char *path, const void *head, size_t head_length, const void *data,
                      uint64_t length, struct error *error)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int why = fd < 0 ? errno : write_all(fd, head, head_length);
    if (!why)
        why = write_all(fd, data, length);
    if (fd >= 0 && !standard && close(fd) != 0 && !why)
        why = errno;
    return why ? error_set(error, ERR_IO, "%.200s: %s", path, strerrordesc_np(why)) : 0;
}

int array_write(const char *path, const sluice_array *array, struct error *error)
{
    char header[NPY_HEADER_WRITTEN_MAX];
    size_t length = npy_format(array, header);
    return write_file(path, header, length, array->data, sluice_array_bytes(array), error);
}

int array_write_picture(const char *path, uint32_t width, uint32_t height,
                        const unsigned char *pixels, struct error *error)
{
    unsigned char *file = NULL;
    size_t length = 0;
    int rc = png_encode(width, height, pixels, &file, &length, error);
    if (!rc)
        rc = write_file(path, file, length, NULL, 0, error);
    free(file);
    return rc;
}
