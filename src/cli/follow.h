/*
 * Following the output of a run or an exec to its end, and turning its end into an exit code.
 */
#pragma once

#include "cli/api.h"

struct follow {
	struct cli *cli;
	struct api *api;    /* may be replaced when the server comes back */
	const char *run_id; /* or an exec's id */
	bool is_exec;
	int64_t since;  /* next byte of the log that is wanted */
	bool follow;    /* until the run has ended; else what is there now */
	bool events;    /* --json: the log's own lines on stdout */
	bool progress;  /* say on a terminal how far its files are */
	bool may_start; /* a server that went away and stays away is started again */
	/* INT goes to the command; a second one, or TERM, ends it; one more leaves it behind. */
	bool pass_signals;
	json_t *run; /* out: the run (or the exec's exit) as it ended, with follow; the caller's */
	bool interrupted; /* out */
};
/* Survives a restart of the server: the stream goes on at the byte where it broke. */
int follow_run(struct follow *follow, struct error *err);

/* Waits until the run has ended and its leases are released; a new reference. */
int await_end(struct cli *cli, struct api *api, const char *run_id, json_t **run,
	      struct error *err);
/* Says how it ended, frees f->run and returns the exit code. */
int follow_finish(struct follow *follow);

/* 0..255 as a shell would say it; 124 timed out, 125 Berth's failure, 128+n signal. */
int exit_code_of(const json_t *run);
/* Of a failed run whose place is kept: how to look into it, and until when, on stderr. */
void print_retained(struct cli *cli, struct api *api, const json_t *run);
/* "acquired 3 ms · staged 9 ms · ran 1.2 s · collected 5 ms · run ID succeeded" on stderr; how long
 * releasing took stands there only where that is known already. */
void print_timeline(const json_t *run);

/* One NDJSON output event to our own stdout or stderr. False when nobody reads it any more. */
bool write_output(const json_t *event);
/* A latch that INT and TERM set while installed; -1 on failure. */
int signals_catch(void);
void signals_restore(void);
int signals_count(void);
bool signals_had_term(void);
