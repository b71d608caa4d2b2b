/* The patterns by which files name modules: Python's regular expressions, as far as such lists use
 * them. Letters, ".", escaped marks, \d and \w, sets in brackets, each with *, + or ?; "|" and
 * groups without a count behind them; "^" at the start and "$" at the end. Time is bounded: no
 * backtracking, at most NAME_PATTERN_CASES cases of "|". Any thread.
 */
#pragma once

#define NAME_PATTERN_MAX 192 /* bytes */
#define NAME_PATTERN_CASES 64

/* How many cases "|" makes of the pattern, those on the way counted, which is what a match costs;
 * -1: it is not understood. */
int name_pattern_cases(const char *pattern);

/* 1: the name matches from its start on, its end may be left over; 0: it does not; -1: that pattern
 * is not understood, whatever the name. */
int name_pattern_match(const char *pattern, const char *name);
