/* The daemon from its command line to its exit code (README.md has them all): what main() calls,
 * once, on the thread that becomes the loop's.
 */
#pragma once

#define EXIT_USAGE 64  /* EX_USAGE */
#define EXIT_OUTPUT 74 /* EX_IOERR: standard output could not be written, or not be opened */

int service_main(int argc, char **argv, char **environment);
