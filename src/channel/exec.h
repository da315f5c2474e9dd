/*
 * One command in a place. Until relays hold the processes, this server does: posix_spawn in its own
 * session, output straight to a run log, the whole tree ended by session and marker when the exec
 * ends for any reason. This file is what the relay's channel replaces; callers see only this
 * header.
 *
 * The environment of the command is exactly what is asked for plus a minimal fixed set (PATH, HOME,
 * LANG, TERM=dumb, USER, LOGNAME, SHELL, TMPDIR when absent); the server's own is never inherited.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/id.h"
#include "record/kinds.h"
#include "runlog/runlog.h"

struct executor; /* every exec this server has going */
struct exec;

struct exec_spec {
	const char *exec_id;    /* chosen by the caller */
	const char *place_id;   /* what executor_stop_place ends */
	int64_t generation;     /* the holder it runs for; the place must be open for it */
	char *const *argv;      /* never a shell string */
	char *const *env;       /* "K=V", on top of the minimal set; NULL for none */
	const char *cwd;        /* absolute */
	const void *stdin_data; /* the whole of stdin; NULL is /dev/null */
	size_t stdin_len;
	int64_t timeout_ms; /* 0: none */
	struct runlog *log; /* borrowed until exec_wait returned */
};

struct exec_result {
	int exit_code;   /* -1 when it did not exit */
	char signal[16]; /* "SIGKILL" or "" */
	enum exec_reason reason;
	int64_t duration_ms;
	int64_t stdout_bytes, stderr_bytes;
};

/* `owner` (the node id) marks every process started here, so that audit tells ours from others'. */
int executor_new(struct clock *clock, const char *owner, struct executor **executor,
		 struct error *err);
void executor_free(struct executor *executor); /* ends what is still going */

/*
 * ERR_COMMAND_NOT_FOUND / ERR_COMMAND_DENIED when it cannot start; ERR_LEASE_ENDED or
 * ERR_STALE_GENERATION when the place is closed or open for another holder. After success exec_wait
 * must be called exactly once; it frees the exec. It fails only when the output could not be kept
 * (the command is ended then); the result is filled all the same.
 */
int exec_start(struct executor *executor, const struct exec_spec *spec, struct exec **exec,
	       struct error *err);
int exec_wait(struct exec *exec, struct exec_result *result, struct error *err);
/* From any thread, any number of times: TERM, then KILL after a short grace, to the whole tree. */
void executor_cancel(struct executor *executor, const char *exec_id, enum exec_reason why);

/* Bookkeeping for recovery after a crash of this server. */
pid_t exec_pid(const struct exec *exec);
unsigned long long exec_start_time(const struct exec *exec);

/*
 * A place takes execs only while it is open, and only for the generation it was opened for: an exec
 * that passed the lease's check just before the holder changed is refused here. Unknown places are
 * closed. executor_stop_place closes it, ends every exec of it and returns when none is left or the
 * deadline passed (ERR_TIMEOUT).
 */
void executor_open_place(struct executor *executor, const char *place_id, int64_t generation);
int executor_stop_place(struct executor *executor, const char *place_id, enum exec_reason why,
			int64_t wait_ms, struct error *err);
/* Whether a command runs there now: a place in use is not idle. */
bool executor_place_busy(struct executor *executor, const char *place_id);

/*
 * Ends what an earlier server left: the recorded process if it is still the same one, its session,
 * and every process carrying the exec's marker. Returns how many were ended.
 */
int exec_reap_leftover(const char *owner, const char *exec_id, pid_t pid,
		       unsigned long long start_time);
/* Processes carrying our owner mark that no live exec explains; for audit. */
size_t executor_strays(struct executor *executor, pid_t *pids, size_t max);
