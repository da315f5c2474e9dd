#include "place/places.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "place/shell/shell_internal.h"

#define ABSENCE_DEFAULT_MS ((int64_t)15 * 60 * 1000)
/* For output and exits on their way, before the relay itself is ended. */
#define LAST_WORDS_MS 3000

unsigned executor_bucket(const char *id)
{
	unsigned hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return hash % EXECUTOR_BUCKETS;
}

static int open_directory(struct executor *executor, const char *path, struct error *err)
{
	struct stat st;

	if (!path || !path_is_absolute(path) || !path_is_clean(path))
		return error_set(err, ERR_VALIDATION,
				 "the runtime directory is a clean absolute "
				 "path");
	if (dir_make(AT_FDCWD, path, 0700, err) < 0 ||
	    dir_open(AT_FDCWD, path, &executor->dirfd, err) < 0)
		return error_wrap(err, "the runtime directory");
	/* Whoever can enter it can talk to relays. */
	if (fstat(executor->dirfd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return error_set(err, ERR_FORBIDDEN, "%s must be ours alone (mode 0700)", path);
	executor->dir = xstrdup(path);
	return 0;
}

static void stop_menders(struct executor *executor)
{
	pthread_mutex_lock(&executor->lock);
	executor->menders_stop = true;
	pthread_cond_broadcast(&executor->mend);
	pthread_mutex_unlock(&executor->lock);
	while (executor->mender_count > 0)
		pthread_join(executor->menders[--executor->mender_count], NULL);
}

static int start_menders(struct executor *executor, struct error *err)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && executor->mender_count < EXECUTOR_MENDERS) {
		r = pthread_create(&executor->menders[executor->mender_count], NULL, mender_main,
				   executor);
		executor->mender_count += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0)
		return 0;
	stop_menders(executor);
	return error_errno(err, r, "starting the menders");
}

static void destroy(struct executor *executor)
{
	keeper_free(executor->keeper);
	channel_loop_free(executor->loop);
	close_fdp(&executor->dirfd);
	strv_free(executor->defaults);
	while (executor->loose) {
		struct loose_call *loose = executor->loose;

		executor->loose = loose->next;
		free(loose->place_id);
		free(loose);
	}
	pthread_mutex_destroy(&executor->lock);
	pthread_cond_destroy(&executor->changed);
	pthread_cond_destroy(&executor->reached);
	pthread_cond_destroy(&executor->mend);
	free(executor->dir);
	free(executor->owner);
	free(executor);
}

int executor_new(const struct executor_options *options, struct executor **out, struct error *err)
{
	struct executor *executor;
	struct keeper_options keeper = {
		.program = options->keeper_path,
		.relay = options->relay_path,
		.dir = options->runtime_path,
		.open_files = options->open_files,
	};

	*out = NULL;
	if (!options->owner || !options->owner[0])
		return error_set(err, ERR_INTERNAL, "an executor needs an owner to mark with");
	executor = xcalloc(1, sizeof(*executor));
	executor->clock = options->clock;
	executor->owner = xstrdup(options->owner);
	executor->boot_epoch = options->boot_epoch;
	executor->absence_ms = options->absence_ms > 0 ? options->absence_ms : ABSENCE_DEFAULT_MS;
	executor->dirfd = -1;
	pthread_mutex_init(&executor->lock, NULL);
	cond_init(&executor->changed);
	cond_init(&executor->reached);
	cond_init(&executor->mend);
	executor->defaults = exec_default_environment();
	if (open_directory(executor, options->runtime_path, err) < 0 ||
	    channel_loop_new(&executor->loop, err) < 0) {
		destroy(executor);
		return -1;
	}
	keeper.loop = executor->loop;
	keeper.dirfd = executor->dirfd;
	executor->keeper = keeper_new(&keeper);
	if (start_menders(executor, err) < 0) {
		destroy(executor);
		return -1;
	}
	*out = executor;
	return 0;
}

static void wake_all_locked(struct executor *executor)
{
	for (size_t i = 0; i < EXECUTOR_BUCKETS; i++) {
		for (struct open_place *p = executor->places[i]; p; p = p->next) {
			pthread_mutex_lock(&p->lock);
			pthread_cond_broadcast(&p->changed);
			pthread_mutex_unlock(&p->lock);
			if (p->stop_fd >= 0)
				latch_set(p->stop_fd);
		}
		for (struct exec *e = executor->execs[i]; e; e = e->next) {
			shell_exec_cancel(e);
			pthread_mutex_lock(&e->lock);
			if (e->stream)
				stream_poke(e->stream);
			pthread_mutex_unlock(&e->lock);
		}
	}
}

void executor_detach(struct executor *executor)
{
	pthread_mutex_lock(&executor->lock);
	atomic_store(&executor->detached, true);
	wake_all_locked(executor);
	pthread_cond_broadcast(&executor->reached);
	pthread_mutex_unlock(&executor->lock);
}

/* What nobody waited for stays its owner's; it only loses us. */
static void orphan_execs_locked(struct executor *executor)
{
	for (size_t i = 0; i < EXECUTOR_BUCKETS; i++) {
		for (struct exec *e = executor->execs[i]; e; e = e->next)
			e->executor = NULL;
		executor->execs[i] = NULL;
	}
}

void executor_free(struct executor *executor)
{
	if (!executor)
		return;
	executor_detach(executor);
	pthread_mutex_lock(&executor->lock);
	while (executor->waiting > 0)
		cond_wait_until(&executor->changed, &executor->lock, -1);
	pthread_mutex_unlock(&executor->lock);
	stop_menders(executor);
	pthread_mutex_lock(&executor->lock);
	orphan_execs_locked(executor);
	pthread_mutex_unlock(&executor->lock);
	for (size_t i = 0; i < EXECUTOR_BUCKETS; i++)
		for (struct open_place *p = executor->places[i]; p; p = p->next)
			place_drop_link(p);
	keeper_free(steal(executor->keeper));
	channel_loop_free(steal(executor->loop));
	for (size_t i = 0; i < EXECUTOR_BUCKETS; i++) {
		while (executor->places[i]) {
			struct open_place *p = executor->places[i];

			executor->places[i] = p->next;
			place_unref(p);
		}
	}
	destroy(executor);
}

static bool is_of(const struct exec *e, const struct open_place *place, const char *place_id)
{
	return place ? e->place == place : str_equal(e->place->id, place_id);
}

/* Execs of the place: of this holding of it, or of any. */
static size_t count_locked(const struct executor *executor, const struct open_place *place,
			   const char *place_id, bool waited_only)
{
	size_t count = 0;

	for (size_t i = 0; i < EXECUTOR_BUCKETS; i++)
		for (const struct exec *e = executor->execs[i]; e; e = e->next)
			count += is_of(e, place, place_id) && (e->waited || !waited_only);
	return count;
}

bool executor_place_busy(struct executor *executor, const char *place_id)
{
	pthread_mutex_lock(&executor->lock);

	bool busy = count_locked(executor, NULL, place_id, false) > 0;

	pthread_mutex_unlock(&executor->lock);
	return busy;
}

/* Until no thread waits for an exec of it any more; those that nobody waits for cannot leave. */
static void wait_left(struct executor *executor, struct open_place *place, int64_t deadline)
{
	pthread_mutex_lock(&executor->lock);
	while (count_locked(executor, place, NULL, true) > 0)
		if (!cond_wait_until(&executor->changed, &executor->lock, deadline))
			break;
	pthread_mutex_unlock(&executor->lock);
}

static struct open_place *take_place(struct executor *executor, const char *place_id)
{
	struct open_place **p;
	struct open_place *place;

	pthread_mutex_lock(&executor->lock);
	p = &executor->places[executor_bucket(place_id)];
	while (*p && !streq((*p)->id, place_id))
		p = &(*p)->next;
	place = *p;
	if (place)
		*p = place->next;
	pthread_mutex_unlock(&executor->lock);
	return place;
}

/* Its execs have calls of their own to be told of; nothing of it is anywhere else. */
static int stop_shell(struct executor *executor, struct open_place *place, enum exec_reason why,
		      int64_t deadline, struct error *err)
{
	int rc;

	pthread_mutex_lock(&place->lock);
	place->stopped = (int)why;
	pthread_mutex_unlock(&place->lock);
	pthread_mutex_lock(&executor->lock);
	for (size_t i = 0; i < EXECUTOR_BUCKETS; i++)
		for (struct exec *e = executor->execs[i]; e; e = e->next)
			if (e->place == place)
				shell_exec_cancel(e);
	pthread_mutex_unlock(&executor->lock);
	rc = shell_stop(place, deadline, err);
	wait_left(executor, place, deadline);
	return rc;
}

static bool is_quiet(struct executor *executor, const struct open_place *place)
{
	pthread_mutex_lock(&executor->lock);

	bool quiet = count_locked(executor, place, NULL, false) == 0;

	pthread_mutex_unlock(&executor->lock);
	return quiet;
}

/* Through the relay first: so every exec's last output and its exit are heard. */
static void end_execs(struct executor *executor, struct open_place *place, enum exec_reason why,
		      int64_t deadline)
{
	struct wire_exec_kill_all m = { .reason = reason_to_wire(why) };
	_cleanup_link_ struct link *link = NULL;

	pthread_mutex_lock(&place->lock);
	place->stopped = (int)why;
	pthread_cond_broadcast(&place->changed);
	pthread_mutex_unlock(&place->lock);
	/* Where nobody listens, ending the relay ends everything. */
	if (is_quiet(executor, place))
		return;
	link = place_current_link(place);
	if (!link ||
	    link_call(link, WIRE_EXEC_KILL_ALL, &m, WIRE_DONE, NULL, NULL, deadline, NULL) < 0)
		return;
	wait_left(executor, place, deadline);
}

int executor_stop_place(struct executor *executor, const char *place_id, enum exec_reason why,
			int64_t wait_ms, struct error *err)
{
	int64_t now = boottime_ms();
	int64_t deadline = now + MAX_OF(wait_ms, 0);
	struct open_place *place = take_place(executor, place_id);
	int rc;

	if (place && place_is_shell(place)) {
		rc = stop_shell(executor, place, why, deadline, err);
		place_unref(place);
		return rc;
	}
	if (place)
		end_execs(executor, place, why,
			  MIN_OF(now + LAST_WORDS_MS, now + MAX_OF(wait_ms, 0) / 2));
	if (place)
		place_settle(place, deadline);
	rc = keeper_destroy(executor->keeper, place_id, deadline, err);
	if (place) {
		place_drop_link(place);
		wait_left(executor, place, deadline);
		place_unref(place);
	}
	return rc;
}
