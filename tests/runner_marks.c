/* Each assertion that holds tells Check where it is: a write to a file, which is read back when the
 * test ends, with a move of all that is left for each. In loops over elements that is most of what a
 * program does. So a place is told once, and once more when others have taken its entry: what is
 * said of a test that crashes (after this point) is the last place that was new. A failure says its
 * own place as ever. The linker sends Check's macros through here (--wrap).
 */
#include <check.h>

#define MARKS 256u /* a power of two */

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

/* Of each thread: assertions may stand in several. */
static _Thread_local struct {
    const char *file;
    int line;
} marks[MARKS];

void __wrap__mark_point(const char *file, int line)
{
    unsigned entry = (unsigned)line % MARKS;
    if (marks[entry].file == file && marks[entry].line == line)
        return;
    marks[entry].file = file;
    marks[entry].line = line;
    __real__mark_point(file, line);
}
