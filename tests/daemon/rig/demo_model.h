/* The demo model in another directory: links to its files, and a chat template of the test's own.
 * The test runs in the repository's root.
 */
#pragma once

/* Makes the directory. */
void demo_model_make(const char *directory, const char *template);
/* A text in place of one of its files. */
void demo_model_put(const char *directory, const char *name, const char *text);
/* Those files, and the directory where nothing else is in it. */
void demo_model_remove(const char *directory);
