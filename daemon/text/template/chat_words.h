/* What Python's str can do, for methods and filters. Private to chat. */
#pragma once

#include "daemon/text/template/chat_value.h"

enum chat_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_TITLE_FILTER };
struct chat_value chat_to_case(struct chat_render *render, struct chat_value text,
                               enum chat_case to);

/* `chars`: the characters to strip; not a string: white space. */
struct chat_value chat_strip(struct chat_render *render, struct chat_value text,
                             struct chat_value chars, bool left, bool right);

/* `max`: parts beyond the first; less than 0: as many as there are. */
struct chat_value chat_split(struct chat_render *render, struct chat_value text,
                             struct chat_value separator, int64_t max, bool from_right);
struct chat_value chat_split_lines(struct chat_render *render, struct chat_value text);
struct chat_value chat_replace(struct chat_render *render, struct chat_value text,
                               struct chat_value old, struct chat_value new, int64_t max);
struct chat_value chat_join(struct chat_render *render, struct chat_value separator,
                            struct chat_value items, bool strings_only);
/* Code points before the first or last occurrence; -1: none. */
int64_t chat_find(struct chat_render *render, struct chat_value text, struct chat_value part,
                  bool last);
