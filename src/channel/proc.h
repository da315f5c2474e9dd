/*
 * What /proc tells about processes, as far as ending the tree of an exec needs it. Everything read
 * here may be out of date by the time it is used; proc_signal is the one way to act on it, because
 * it cannot hit a process that got the number of another. Private to channel/.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "base/mem.h"

struct proc {
	pid_t pid, parent, session;
	char state;
	bool dead;    /* a zombie, with no thread left that runs */
	bool ending;  /* dead, or about to be: it has given its memory back */
	bool in_exec; /* has given up its old program and not begun the new one */
	unsigned long long start_time;
};
bool proc_read(pid_t pid, struct proc *out); /* false: gone */

struct proc_list {
	struct proc *items;
	size_t count, cap;
};
void proc_list_add(struct proc_list *list, const struct proc *proc);
void proc_list_sort(struct proc_list *list); /* by pid, then start time */
const struct proc *proc_list_find(const struct proc_list *sorted, pid_t pid);
void proc_list_clear(struct proc_list *list);
#define _cleanup_procs_ _cleanup_(proc_list_clear)

/* Every process this one can see, by pid. */
void proc_list_all(struct proc_list *out);
/*
 * Children of this process: those the main thread started and, as long as this process is a
 * subreaper, every orphan below it.
 */
void proc_list_children(struct proc_list *out);
/* The number given out last on this machine; 0 when unknown. */
pid_t proc_newest(void);

#define PROC_MARK_SIZE 256
/* The marks of an exec in the environment a process was started with; "" when there is none. */
struct proc_marks {
	char owner[PROC_MARK_SIZE], exec_id[PROC_MARK_SIZE];
};
#define MARK_OWNER "BERTH_OWNER"
#define MARK_EXEC_ID "BERTH_EXEC_ID"
void proc_marks_read(pid_t pid, struct proc_marks *out);

/* Signals it if it is still the same process. */
bool proc_signal(const struct proc *proc, int signal);
