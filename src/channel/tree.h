/*
 * The processes of one exec, and how to end all of them and no other. Private to channel/.
 *
 * A process belongs to the tree when it is in the leader's session, or when it carries the exec's
 * mark in its environment, or when one of its ancestors does. The executor is a subreaper, so
 * whatever a daemon forks off stays below this process and is found there.
 *
 * The limit: an orphan that has left the session and was started with an emptied environment (or
 * has overwritten it) cannot be told from a stranger. Relays end that with a cgroup per exec.
 */
#pragma once

#include "channel/proc.h"

struct tree {
	const char *owner, *exec_id;
	pid_t leader;
	unsigned long long leader_start;
	/* Our own child and not reaped yet: the number of leader, session and group stays its own.
	 */
	bool leader_is_ours;
	struct proc_list signalled; /* members that were sent something */
	struct proc_list dead;      /* orphans that were dead when we last looked */
};
void tree_clear(struct tree *tree);

/*
 * True when no process but the leader can be left, false when there is one or it is not certain.
 * Only for a leader that is ours and has ended.
 */
bool tree_is_bare(struct tree *tree);
void tree_signal(struct tree *tree, int signal);
/* Stops, then kills every member until none is left. -1 when some would not die in time. */
int tree_end(struct tree *tree, int budget_ms);
/* When the tree has ended: reaps what fell to us, the leader excepted. Returns how many members
 * were signalled in all. */
int tree_reap(struct tree *tree);
