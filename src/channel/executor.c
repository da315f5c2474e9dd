#include "channel/executor.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define SWEEP_EVERY_MS 1000
#define FREE_GRACE_MS 1000

int executor_new(struct clock *clock, const char *owner, struct executor **out, struct error *err)
{
	pthread_condattr_t attr;

	*out = NULL;
	if (!owner || !owner[0] || strlen(owner) >= PROC_MARK_SIZE)
		return error_set(err, ERR_INTERNAL, "an executor needs an owner to mark with");
	/* Orphans of execs come to us instead of init, so that they can be found and ended. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return error_errno(err, errno, "become the reaper of orphans");

	struct executor *executor = xcalloc(1, sizeof(*executor));

	executor->clock = clock;
	clock_init_system(&executor->system);
	executor->owner = xstrdup(owner);
	executor->defaults = exec_default_environment();
	pthread_mutex_init(&executor->lock, NULL);
	pthread_mutex_init(&executor->sweep_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&executor->delisted, &attr);
	pthread_condattr_destroy(&attr);
	*out = executor;
	return 0;
}

static struct open_place **find_place(struct executor *executor, const char *id)
{
	struct open_place **p = &executor->places;

	while (*p && !streq((*p)->id, id))
		p = &(*p)->next;
	return p;
}

static struct exec *find_exec(struct executor *executor, const char *id)
{
	struct exec *exec = executor->execs;

	while (exec && !streq(exec->id, id))
		exec = exec->next;
	return exec;
}

static int check_place(struct executor *executor, const char *place_id, int64_t generation,
		       struct error *err)
{
	const struct open_place *place = *find_place(executor, place_id);

	if (FENCE_OFF("exec.fence"))
		return 0;
	if (!place)
		return error_set(err, ERR_LEASE_ENDED, "the place is not open for commands");
	if (place->generation != generation)
		return error_set(err, ERR_STALE_GENERATION,
				 "the place is open for generation %lld, not %lld",
				 (long long)place->generation, (long long)generation);
	return 0;
}

int executor_admit(struct executor *executor, struct exec *exec, int64_t generation,
		   struct error *err)
{
	pthread_mutex_lock(&executor->lock);

	int rc = check_place(executor, exec->place_id, generation, err);

	if (rc == 0 && find_exec(executor, exec->id))
		rc = error_set(err, ERR_CONFLICT, "exec %s is going already", exec->id);
	if (rc == 0) {
		exec->number = ++executor->admitted;
		exec->next = executor->execs;
		executor->execs = exec;
		executor->starting++;
	}
	pthread_mutex_unlock(&executor->lock);
	return rc;
}

void executor_started(struct executor *executor)
{
	pthread_mutex_lock(&executor->lock);
	executor->starting--;
	pthread_mutex_unlock(&executor->lock);
}

void executor_delist(struct exec *exec)
{
	struct executor *executor = exec->executor;

	pthread_mutex_lock(&executor->lock);
	for (struct exec **p = &executor->execs; *p; p = &(*p)->next) {
		if (*p == exec) {
			*p = exec->next;
			break;
		}
	}
	pthread_cond_broadcast(&executor->delisted);
	pthread_mutex_unlock(&executor->lock);
}

static void wish_locked(struct exec *exec, enum exec_reason why, int64_t grace_ms)
{
	if (exec->cancelled == EXEC_NOT_CANCELLED)
		exec->cancelled = (int)why;
	exec->grace_ms = MIN_OF(exec->grace_ms, grace_ms);
	latch_set(exec->cancel_fd);
}

int exec_wish(struct exec *exec, int64_t *grace_ms)
{
	pthread_mutex_lock(&exec->executor->lock);
	latch_clear(exec->cancel_fd);

	int cancelled = exec->cancelled;

	*grace_ms = exec->grace_ms;
	pthread_mutex_unlock(&exec->executor->lock);
	return cancelled;
}

void executor_cancel(struct executor *executor, const char *exec_id, enum exec_reason why)
{
	pthread_mutex_lock(&executor->lock);

	struct exec *exec = find_exec(executor, exec_id);

	if (exec)
		wish_locked(exec, why, EXEC_GRACE_MS);
	pthread_mutex_unlock(&executor->lock);
}

void executor_open_place(struct executor *executor, const char *place_id, int64_t generation)
{
	pthread_mutex_lock(&executor->lock);

	struct open_place **place = find_place(executor, place_id);

	if (!*place) {
		size_t size = strlen(place_id) + 1;

		*place = xcalloc(1, sizeof(**place) + size);
		memcpy((*place)->id, place_id, size);
	}
	(*place)->generation = generation;
	pthread_mutex_unlock(&executor->lock);
}

static struct timespec deadline_in(int64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)(ms / 1000);
	t.tv_nsec += (long)(ms % 1000) * 1000000L;
	if (t.tv_nsec >= 1000000000L) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000L;
	}
	return t;
}

/* How many of the place (NULL: of all) that were admitted up to `number` are still listed. */
static size_t count_locked(const struct executor *executor, const char *place_id, uint64_t number)
{
	size_t count = 0;

	for (const struct exec *e = executor->execs; e; e = e->next)
		count += e->number <= number && (!place_id || streq(e->place_id, place_id));
	return count;
}

/* Returns how many are left when the time is over. */
static size_t wait_gone_locked(struct executor *executor, const char *place_id, uint64_t number,
			       int64_t wait_ms)
{
	struct timespec until = deadline_in(wait_ms);
	size_t left;

	while ((left = count_locked(executor, place_id, number)) > 0) {
		if (pthread_cond_timedwait(&executor->delisted, &executor->lock, &until) ==
		    ETIMEDOUT)
			return count_locked(executor, place_id, number);
	}
	return left;
}

int executor_stop_place(struct executor *executor, const char *place_id, enum exec_reason why,
			int64_t wait_ms, struct error *err)
{
	wait_ms = MAX_OF(wait_ms, 0);
	pthread_mutex_lock(&executor->lock);

	struct open_place **place = find_place(executor, place_id);

	if (*place) {
		struct open_place *closed = *place;

		*place = closed->next;
		free(closed);
	}
	/* A short wait leaves half of itself for the killing. */
	for (struct exec *e = executor->execs; e; e = e->next) {
		if (streq(e->place_id, place_id))
			wish_locked(e, why, MIN_OF(EXEC_GRACE_MS, wait_ms / 2));
	}

	/* Should the place be opened again meanwhile, its new execs are not waited for. */
	size_t left = wait_gone_locked(executor, place_id, executor->admitted, wait_ms);

	pthread_mutex_unlock(&executor->lock);
	if (left > 0)
		return error_set(err, ERR_TIMEOUT, "%zu commands still run after %lld ms", left,
				 (long long)wait_ms);
	return 0;
}

bool executor_place_busy(struct executor *executor, const char *place_id)
{
	pthread_mutex_lock(&executor->lock);

	bool busy = count_locked(executor, place_id, executor->admitted) > 0;

	pthread_mutex_unlock(&executor->lock);
	return busy;
}

static bool is_leader_locked(const struct executor *executor, pid_t pid)
{
	for (const struct exec *e = executor->execs; e; e = e->next) {
		if (e->tree.leader == pid)
			return true;
	}
	return false;
}

/*
 * Nothing tells whose child a zombie was before it became ours. But children other rooms start stay
 * in our session, leaders of execs are listed, and whoever starts a child in another session reaps
 * it at once: what is dead, foreign to all of them and still here a sweep later is an orphan.
 */
static void sweep(struct executor *executor)
{
	_cleanup_procs_ struct proc_list children = { 0 }, dead = { 0 };
	pid_t session = getsid(0);

	proc_list_children(&children);
	pthread_mutex_lock(&executor->lock);
	if (executor->starting > 0) {
		pthread_mutex_unlock(&executor->lock);
		return;
	}
	for (size_t i = 0; i < children.count; i++) {
		const struct proc *p = &children.items[i];

		if (p->dead && p->session != session && !is_leader_locked(executor, p->pid))
			proc_list_add(&dead, p);
	}
	pthread_mutex_unlock(&executor->lock);
	proc_list_sort(&dead);
	for (size_t i = 0; i < dead.count; i++) {
		const struct proc *seen =
			proc_list_find(&executor->dead_orphans, dead.items[i].pid);

		if (seen && seen->start_time == dead.items[i].start_time)
			waitpid(seen->pid, NULL, WNOHANG);
	}
	proc_list_clear(&executor->dead_orphans);
	executor->dead_orphans = dead;
	dead = (struct proc_list){ 0 };
}

void executor_sweep(struct executor *executor)
{
	if (pthread_mutex_trylock(&executor->sweep_lock) != 0)
		return;

	int64_t now = clock_mono(&executor->system);

	if (now - executor->swept_mono >= SWEEP_EVERY_MS) {
		executor->swept_mono = now;
		sweep(executor);
	}
	pthread_mutex_unlock(&executor->sweep_lock);
}

size_t executor_strays(struct executor *executor, pid_t *pids, size_t max)
{
	_cleanup_procs_ struct proc_list all = { 0 };
	size_t count = 0;

	proc_list_all(&all);
	for (size_t i = 0; i < all.count; i++) {
		struct proc_marks marks;

		if (all.items[i].dead || all.items[i].pid == getpid())
			continue;
		proc_marks_read(all.items[i].pid, &marks);
		if (!streq(marks.owner, executor->owner))
			continue;
		pthread_mutex_lock(&executor->lock);

		bool explained = find_exec(executor, marks.exec_id) != NULL;

		pthread_mutex_unlock(&executor->lock);
		if (explained)
			continue;
		if (count < max)
			pids[count] = all.items[i].pid;
		count++;
	}
	return count;
}

/* The next exec that nobody waits for; it becomes the caller's to wait for. */
static struct exec *take_unwaited(struct executor *executor)
{
	struct exec *exec;

	pthread_mutex_lock(&executor->lock);
	for (exec = executor->execs; exec; exec = exec->next) {
		wish_locked(exec, EXEC_CANCELLED, FREE_GRACE_MS);
		if (!exec->waited)
			break;
	}
	pthread_mutex_unlock(&executor->lock);
	return exec;
}

void executor_free(struct executor *executor)
{
	struct exec *exec;
	struct exec_result result;

	if (!executor)
		return;
	while ((exec = take_unwaited(executor)))
		exec_wait(exec, &result, NULL);
	pthread_mutex_lock(&executor->lock);

	size_t left = wait_gone_locked(executor, NULL, executor->admitted,
				       FREE_GRACE_MS + 2 * EXEC_END_MS);

	pthread_mutex_unlock(&executor->lock);
	if (left > 0) {
		/* Their threads still use it. */
		log_error("%zu commands would not end; leaving them behind", left);
		return;
	}
	for (struct open_place *p = executor->places, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	proc_list_clear(&executor->dead_orphans);
	pthread_mutex_destroy(&executor->lock);
	pthread_mutex_destroy(&executor->sweep_lock);
	pthread_cond_destroy(&executor->delisted);
	strv_free(executor->defaults);
	free(executor->owner);
	free(executor);
}
