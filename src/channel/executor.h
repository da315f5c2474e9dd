/*
 * The executor's register: which execs are going, which places are open and for whom. Private to
 * channel/.
 *
 * The life of an exec: admitted (listed, the place was open for it) -> started (its process runs)
 * -> waited for (exec_wait pumps its output on the caller's thread) -> ended (tree gone, delisted).
 * Everybody else only asks: executor_cancel and executor_stop_place leave a wish and wake the pump.
 */
#pragma once

#include <pthread.h>
#include "channel/exec.h"
#include "channel/tree.h"

#define EXEC_GRACE_MS 5000 /* between TERM and KILL */
#define EXEC_END_MS 10000  /* for what was killed to be gone */
#define EXEC_NOT_CANCELLED (-1)

struct open_place {
	struct open_place *next;
	int64_t generation;
	char id[];
};

struct executor {
	struct clock *clock;
	struct clock system; /* for what the kernel does, whatever time a test gives to `clock` */
	char *owner;
	char **defaults; /* the minimal environment */

	pthread_mutex_t lock;
	pthread_cond_t delisted;
	struct exec *execs;
	struct open_place *places;
	uint64_t admitted; /* execs so far */
	int starting;      /* execs whose process has no number yet */

	pthread_mutex_t sweep_lock;
	struct proc_list dead_orphans; /* seen by the last sweep */
	int64_t swept_mono;
};

struct exec {
	struct executor *executor;
	struct exec *next;
	uint64_t number; /* as the admitted-th */
	char *id, *place_id;
	bool waited;      /* under the executor's lock */
	int cancelled;    /* enum exec_reason or EXEC_NOT_CANCELLED; the first wish counts, lock */
	int64_t grace_ms; /* the shortest asked for; lock */
	int cancel_fd;    /* latch: look at the two above again */

	struct tree tree;
	int pidfd;
	int stdin_fd, output_fd[2]; /* -1 when closed; non-blocking */
	char *stdin_data;           /* what is not written yet */
	size_t stdin_len, stdin_done;
	struct runlog *log;
	int64_t started_mono, deadline_mono; /* executor->clock; deadline -1: none */
};

/* Lists it, if its place is open for that generation and the id is free. */
int executor_admit(struct executor *executor, struct exec *exec, int64_t generation,
		   struct error *err);
void executor_delist(struct exec *exec);
/* The process has its number now (or never will): sweeps may go on. */
void executor_started(struct executor *executor);
/* What was asked of it; EXEC_NOT_CANCELLED when nothing was. Clears the latch. */
int exec_wish(struct exec *exec, int64_t *grace_ms);
/*
 * Orphans of ended execs that die by themselves stay our zombies. From time to time this reaps
 * those which nobody else can own.
 */
void executor_sweep(struct executor *executor);

char **exec_default_environment(void);
char **exec_environment(const struct executor *executor, const struct exec_spec *spec,
			struct error *err);
