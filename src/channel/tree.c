#include "channel/tree.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

/* Rounds in which members are only stopped, so that none can fork while others are looked for. */
#define STOP_ROUNDS 8
/* How often the newest processes are looked at between two rounds; see hunt(). */
#define HUNT_LOOKS 100
#define HUNT_NEWEST 4
#define PAUSE_MAX_MS 20

static bool carries_mark(const struct tree *tree, pid_t pid)
{
	struct proc_marks marks;

	/* Nobody is marked with nothing, or all the world would be. */
	if (!tree->exec_id[0] || !tree->owner[0])
		return false;
	proc_marks_read(pid, &marks);
	return streq(marks.exec_id, tree->exec_id) && streq(marks.owner, tree->owner);
}

/*
 * Whether a process belongs by itself, without looking at its ancestors. One that ends while it is
 * looked at may have started another one that was not there yet: then *missed is set.
 */
static bool is_root(const struct tree *tree, const struct proc *p, bool leader_lives, bool *missed)
{
	struct proc now;

	/* The number of a leader that is gone may be a stranger's by now, and so its session's. */
	if ((leader_lives || tree->leader_is_ours) &&
	    (p->pid == tree->leader || p->session == tree->leader))
		return true;
	/* Anything else of a tree below us descends from an orphan that is our child by now. */
	if (tree->leader_is_ours && p->parent != getpid())
		return false;
	if (carries_mark(tree, p->pid))
		return true;
	if (tree->leader_is_ours && (!proc_read(p->pid, &now) || now.ending))
		*missed = true;
	return false;
}

enum belongs { UNKNOWN, NO, YES };

/* Up the ancestors to the first one whose answer is known, and that answer for all on the way. */
static void settle(const struct proc_list *all, enum belongs *belongs, size_t index)
{
	enum belongs answer = UNKNOWN;
	size_t i = index;

	for (size_t steps = 0; steps <= all->count && answer == UNKNOWN; steps++) {
		const struct proc *parent = proc_list_find(all, all->items[i].parent);

		if (belongs[i] != UNKNOWN)
			answer = belongs[i];
		else if (!parent)
			answer = NO;
		else
			i = (size_t)(parent - all->items);
	}
	/* A loop can only come from numbers that changed hands while we read. */
	if (answer == UNKNOWN)
		answer = NO;
	for (i = index; belongs[i] == UNKNOWN;) {
		const struct proc *parent = proc_list_find(all, all->items[i].parent);

		belongs[i] = answer;
		if (!parent)
			break;
		i = (size_t)(parent - all->items);
	}
}

static bool is_same(const struct proc *a, const struct proc *b)
{
	return a && b && a->pid == b->pid && a->start_time == b->start_time;
}

/* Remembers the dead among our orphans; true when there are new ones. */
static bool note_dead(struct tree *tree, const struct proc_list *all)
{
	struct proc_list dead = { 0 };
	pid_t session = getsid(0);
	bool more = false;

	for (size_t i = 0; i < all->count; i++) {
		const struct proc *p = &all->items[i];

		if (!p->dead || p->parent != getpid() || p->session == session ||
		    p->pid == tree->leader)
			continue;
		if (!is_same(p, proc_list_find(&tree->dead, p->pid)))
			more = true;
		proc_list_add(&dead, p);
	}
	proc_list_clear(&tree->dead);
	tree->dead = dead;
	return more;
}

/*
 * Everybody alive in the tree. This process and init are never members, nor a way to them.
 *
 * Returns false when somebody may have been missed: whoever forked and ended after the directory
 * was read had a child that is not in it. It shows as dead, and was not dead before, or is gone
 * when its mark is asked for. So true and no members means that there are none.
 */
static bool find_members(struct tree *tree, struct proc_list *members)
{
	_cleanup_procs_ struct proc_list all = { 0 };
	bool missed = false;

	members->count = 0;
	proc_list_all(&all);
	if (all.count == 0)
		return true;

	_cleanup_free_ enum belongs *belongs = xcalloc(all.count, sizeof(*belongs));
	const struct proc *leader = proc_list_find(&all, tree->leader);
	bool leader_lives = leader && leader->pid > 1 && leader->start_time == tree->leader_start;

	if (tree->leader_is_ours && note_dead(tree, &all))
		missed = true;
	for (size_t i = 0; i < all.count; i++) {
		const struct proc *p = &all.items[i];

		if (p->pid == getpid() || p->pid == 1 || p->dead)
			belongs[i] = NO;
		else if (is_root(tree, p, leader_lives, &missed))
			belongs[i] = YES;
	}
	for (size_t i = 0; i < all.count; i++) {
		settle(&all, belongs, i);
		if (belongs[i] == YES)
			proc_list_add(members, &all.items[i]);
	}
	return !missed;
}

/* The same question asked of our children alone, who are few. */
static bool look_at_children(const struct tree *tree, bool *missed)
{
	_cleanup_procs_ struct proc_list children = { 0 };
	pid_t session = getsid(0);

	proc_list_children(&children);
	for (size_t i = 0; i < children.count; i++) {
		const struct proc *p = &children.items[i];

		if (p->pid == tree->leader || p->session == session)
			continue;
		if (p->dead)
			*missed = true;
		else if (is_root(tree, p, true, missed))
			return true;
	}
	return false;
}

bool tree_is_bare(struct tree *tree)
{
	_cleanup_procs_ struct proc_list members = { 0 };
	bool missed = false;

	if (look_at_children(tree, &missed))
		return false;
	return !missed || (find_members(tree, &members) && members.count == 0);
}

static void signal_member(struct tree *tree, const struct proc *member, int signal)
{
	if (proc_signal(member, signal))
		proc_list_add(&tree->signalled, member);
}

void tree_signal(struct tree *tree, int signal)
{
	_cleanup_procs_ struct proc_list members = { 0 };

	find_members(tree, &members);
	for (size_t i = 0; i < members.count; i++)
		signal_member(tree, &members.items[i], signal);
}

/*
 * A chain in which each process forks the next one and ends, each in a session of its own, is
 * always gone by the time a whole round has found it. But the one that lives has one of the last
 * numbers that were given out; looking there and nowhere else is faster than it can fork. It has
 * our mark, so it can only become our zombie and keeps its number: plain kill() is safe.
 */
static void hunt(struct tree *tree)
{
	for (int look = 0; look < HUNT_LOOKS; look++) {
		pid_t newest = proc_newest();
		struct proc proc;

		for (pid_t pid = newest; pid > newest - HUNT_NEWEST && pid > 1; pid--) {
			if (pid == tree->leader || !carries_mark(tree, pid))
				continue;
			kill(pid, SIGKILL);
			if (proc_read(pid, &proc))
				proc_list_add(&tree->signalled, &proc);
		}
	}
}

/* What to send in this round: first everybody must stand still, but not for ever. */
static int choose_signal(const struct proc_list *members, int round)
{
	if (round >= STOP_ROUNDS)
		return SIGKILL;
	for (size_t i = 0; i < members->count; i++) {
		if (members->items[i].state != 'T' && members->items[i].state != 't')
			return SIGSTOP;
	}
	return SIGKILL;
}

int tree_end(struct tree *tree, int budget_ms)
{
	_cleanup_procs_ struct proc_list members = { 0 };
	struct clock clock;
	int pause_ms = 0;

	clock_init_system(&clock);

	int64_t deadline = clock_mono(&clock) + budget_ms;

	for (int round = 0;; round++) {
		bool missed = !find_members(tree, &members);

		if (!missed && members.count == 0)
			return 0;
		if (clock_mono(&clock) > deadline) {
			log_warn("processes of exec %s do not end: %zu left", tree->exec_id,
				 members.count);
			return -1;
		}

		int signal = choose_signal(&members, round);

		/* To the group as one act: nobody in it can fork a way out meanwhile. */
		if (tree->leader_is_ours)
			kill(-tree->leader, signal);
		for (size_t i = 0; i < members.count; i++)
			signal_member(tree, &members.items[i], signal);
		if (missed)
			hunt(tree);
		if (signal == SIGKILL && !missed) {
			poll(NULL, 0, pause_ms);
			pause_ms = MIN_OF(pause_ms + 1, PAUSE_MAX_MS);
		}
	}
}

static size_t drop_repeated(struct proc_list *list)
{
	size_t kept = 0;

	proc_list_sort(list);
	for (size_t i = 0; i < list->count; i++) {
		const struct proc *last = kept ? &list->items[kept - 1] : NULL;

		if (!is_same(&list->items[i], last))
			list->items[kept++] = list->items[i];
	}
	return list->count = kept;
}

/* Dead and fallen to us: is it certain that it was a member? */
static bool was_member(const struct tree *tree, const struct proc *p)
{
	if (is_same(p, proc_list_find(&tree->signalled, p->pid)))
		return true;
	if (tree->leader_is_ours && p->session == tree->leader)
		return true;
	/* The leader of a session may be that of another exec, and is its waiter's to reap. */
	if (p->pid == p->session || p->session == getsid(0))
		return false;
	for (size_t i = 0; i < tree->signalled.count; i++) {
		if (tree->signalled.items[i].session == p->session)
			return true;
	}
	return false;
}

int tree_reap(struct tree *tree)
{
	_cleanup_procs_ struct proc_list children = { 0 };
	size_t members = drop_repeated(&tree->signalled);

	proc_list_children(&children);
	for (size_t i = 0; i < children.count; i++) {
		const struct proc *p = &children.items[i];

		if (p->dead && p->pid != tree->leader && was_member(tree, p))
			waitpid(p->pid, NULL, WNOHANG);
	}
	return (int)MIN_OF(members, INT_MAX);
}

void tree_clear(struct tree *tree)
{
	proc_list_clear(&tree->signalled);
	proc_list_clear(&tree->dead);
}
