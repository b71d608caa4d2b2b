/* Files that something was read from, a model's texts say, those that were not there among them, by
 * what the system says of each: device, inode, size, and when it was changed, to the nanosecond.
 * Where none is another by now nothing need be read again.
 *
 * A file is noted before it is read, so that one which changes meanwhile is another afterwards. Of
 * what cannot be looked at, or finds no room here, nothing is known: it does not hold.
 *
 * Owned by one thread at a time, or read by any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FILE_MARKS_MAX 16
#define FILE_MARK_WORDS 7

struct file_mark {
    char *path; /* owned */
    bool there;
    uint64_t words[FILE_MARK_WORDS]; /* 0 where it is not */
};

/* Zeroed memory: nothing was noted. */
struct file_marks {
    struct file_mark at[FILE_MARKS_MAX];
    uint32_t count;
    bool lost; /* something could not be noted */
};

/* name: within the directory; "": `directory` is the file's path. Noted once. */
void file_marks_note(struct file_marks *marks, const char *directory, const char *name);
/* Something was noted, and all of it is as it was. Any thread. */
bool file_marks_hold(const struct file_marks *marks);
void file_marks_free(struct file_marks *marks);
