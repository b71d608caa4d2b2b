/* The daemon from its command line to its exit code: what main() calls.
 */
#pragma once

#define EXIT_USAGE 64 /* EX_USAGE */

int service_main(int argc, char **argv, char **environment);
