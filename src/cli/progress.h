/*
 * How far something is that takes its time: one line on the terminal that is written over, and
 * nothing at all where stderr is none.
 */
#pragma once

#include "base/json.h"

struct progress {
	bool is_on;    /* there is a terminal and nobody asked for silence */
	bool drawn;    /* the line is there */
	char step[16]; /* of the last line */
	int64_t begun; /* when that step was first heard of, ms */
	int64_t drawn_at;
};
void progress_begin(struct progress *progress, bool quiet);
/* {step, files, filesTotal, bytes, bytesTotal} */
void progress_show(struct progress *progress, const json_t *now);
/* Takes the line away. */
void progress_clear(struct progress *progress);

/* "12 B", "3.4 MB" */
void format_bytes(int64_t bytes, char *out, size_t size);
/* The line itself, without the terminal's own words; `ms` since the step began. */
void progress_line(const json_t *now, int64_t ms, int columns, char *out, size_t size);
