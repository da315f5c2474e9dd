/*
 * The commands that were started through the API, each on a thread of its own that waits for its
 * end: a client that goes away does not end its exec, and finds it again under its Idempotency-Key.
 *
 * An exec with a key is `kept`: a file is there before the command starts, gets its outcome when it
 * ends, and stays with the output for as long as the key does. A file that says "running" while
 * nothing here runs was left by a server that died; that exec is lost. An exec without a key leaves
 * nothing behind once it has ended and its last reader is gone.
 */
#pragma once

#include "driver/driver.h"

struct execs;
struct live_exec;

struct execs_options {
	const struct drivers *drivers;
	struct executor *executor;
	struct clock *clock;
	int dirfd;          /* <data>/execs; duplicated */
	int64_t log_bytes;  /* bound of one log; 0: none */
	size_t max_running; /* 0: 512 */
};
int execs_new(const struct execs_options *options, struct execs **execs, struct error *err);
/* Cancels what is going and waits for it to end. */
void execs_stop(struct execs *execs);
void execs_free(struct execs *execs); /* after execs_stop */
size_t execs_active(struct execs *execs);
/* Forgets kept execs that ended before the time; returns how many, or -1. */
int64_t execs_prune(struct execs *execs, int64_t before_ms, struct error *err);

struct exec_outcome {
	struct exec_result result;
	char error[256]; /* what went wrong beside the command itself; "" for nothing */
};
/* {exitCode, signal, reason, durationMs, error?} */
void exec_outcome_put(json_t *object, const struct exec_outcome *outcome);

/*
 * spec->log is made here, everything else must be filled. ERR_TOO_MANY when too many run. The
 * reference belongs to the caller.
 */
int execs_start(struct execs *execs, const struct place *place, const struct exec_spec *spec,
		bool kept, struct live_exec **live, struct error *err);
struct live_exec *execs_find(struct execs *execs, const char *id); /* new reference or NULL */
void live_exec_unref(struct live_exec *live);
/* Of a kept exec that is not going any more. ERR_NOT_FOUND when there never was one. */
int execs_recall(struct execs *execs, const char *id, struct exec_outcome *outcome,
		 struct error *err);
/* Valid once the log is not live any more. */
void live_exec_outcome(struct live_exec *live, struct exec_outcome *outcome);
/* The log of an exec; `live` NULL for a kept one. ERR_NOT_FOUND when it was pruned. */
int execs_read(struct execs *execs, const struct live_exec *live, const char *id,
	       struct runlog_reader **reader, struct error *err);
