/*
 * Following a run's output to its end, and turning its end into an exit code.
 */
#pragma once

#include "cli/api.h"

struct follow {
	struct cli *cli;
	struct api *api; /* may be replaced when the server comes back */
	const char *run_id;
	int64_t since;         /* next byte of the log that is wanted */
	bool follow;           /* until the run has ended; else what is there now */
	bool events;           /* --json: the log's own lines on stdout */
	bool may_start;        /* a server that went away and stays away is started again */
	bool cancel_on_signal; /* INT and TERM cancel the run; a second one gives up */
	json_t *run;           /* out: the run as it ended (with follow); owned by the caller */
	bool interrupted;      /* out */
};
/* Survives a restart of the server: the stream goes on at the byte where it broke. */
int follow_run(struct follow *follow, struct error *err);

/* 0..255 as a shell would say it; 124 timed out, 125 Berth's failure, 128+n signal. */
int exit_code_of(const json_t *run);
/* "acquired 3 ms · ran 1.2 s · released 2 ms" on stderr. */
void print_timeline(const json_t *run);

/* One NDJSON output event to our own stdout or stderr. False when nobody reads it any more. */
bool write_output(const json_t *event);
/* A latch that INT and TERM set while installed; -1 on failure. */
int signals_catch(void);
void signals_restore(void);
int signals_count(void);
