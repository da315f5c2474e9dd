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

unsigned places_bucket(const char *id)
{
	unsigned hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return hash % PLACES_BUCKETS;
}

static int open_directory(struct places *places, const char *path, struct error *err)
{
	struct stat st;

	if (!path || !path_is_absolute(path) || !path_is_clean(path))
		return error_set(err, ERR_VALIDATION,
				 "the runtime directory is a clean absolute "
				 "path");
	if (dir_make(AT_FDCWD, path, 0700, err) < 0 ||
	    dir_open(AT_FDCWD, path, &places->dirfd, err) < 0)
		return error_wrap(err, "the runtime directory");
	/* Whoever can enter it can talk to relays. */
	if (fstat(places->dirfd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return error_set(err, ERR_FORBIDDEN, "%s must be ours alone (mode 0700)", path);
	places->dir = xstrdup(path);
	return 0;
}

static void stop_reconnectors(struct places *places)
{
	pthread_mutex_lock(&places->lock);
	places->reconnectors_stop = true;
	pthread_cond_broadcast(&places->mend);
	pthread_mutex_unlock(&places->lock);
	while (places->reconnector_count > 0)
		pthread_join(places->reconnectors[--places->reconnector_count], NULL);
}

static int start_reconnectors(struct places *places, struct error *err)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && places->reconnector_count < PLACES_MENDERS) {
		r = pthread_create(&places->reconnectors[places->reconnector_count], NULL,
				   reconnector_main, places);
		places->reconnector_count += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0)
		return 0;
	stop_reconnectors(places);
	return error_errno(err, r, "starting the reconnectors");
}

static void destroy(struct places *places)
{
	keeper_free(places->keeper);
	channel_loop_free(places->loop);
	close_fdp(&places->dirfd);
	strv_free(places->defaults);
	while (places->loose) {
		struct unfenced_call *loose = places->loose;

		places->loose = loose->next;
		free(loose->place_id);
		free(loose);
	}
	pthread_mutex_destroy(&places->lock);
	pthread_cond_destroy(&places->changed);
	pthread_cond_destroy(&places->reached);
	pthread_cond_destroy(&places->mend);
	free(places->dir);
	free(places->owner);
	free(places);
}

int places_new(const struct places_options *options, struct places **out, struct error *err)
{
	struct places *places;
	struct keeper_options keeper = {
		.program = options->keeper_path,
		.relay = options->relay_path,
		.dir = options->runtime_path,
		.open_files = options->open_files,
	};

	*out = NULL;
	if (!options->owner || !options->owner[0])
		return error_set(err, ERR_INTERNAL, "places need an owner to mark with");
	places = xcalloc(1, sizeof(*places));
	places->clock = options->clock;
	places->owner = xstrdup(options->owner);
	places->boot_epoch = options->boot_epoch;
	places->absence_ms = options->absence_ms > 0 ? options->absence_ms : ABSENCE_DEFAULT_MS;
	places->dirfd = -1;
	pthread_mutex_init(&places->lock, NULL);
	cond_init(&places->changed);
	cond_init(&places->reached);
	cond_init(&places->mend);
	places->defaults = exec_default_environment();
	if (open_directory(places, options->runtime_path, err) < 0 ||
	    channel_loop_new(&places->loop, err) < 0) {
		destroy(places);
		return -1;
	}
	keeper.loop = places->loop;
	keeper.dirfd = places->dirfd;
	places->keeper = keeper_new(&keeper);
	if (start_reconnectors(places, err) < 0) {
		destroy(places);
		return -1;
	}
	*out = places;
	return 0;
}

static void wake_all_locked(struct places *places)
{
	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		for (struct open_place *p = places->open[i]; p; p = p->next) {
			pthread_mutex_lock(&p->lock);
			pthread_cond_broadcast(&p->changed);
			pthread_mutex_unlock(&p->lock);
			if (p->stop_fd >= 0)
				latch_set(p->stop_fd);
		}
		for (struct exec *e = places->execs[i]; e; e = e->next) {
			shell_exec_cancel(e);
			pthread_mutex_lock(&e->lock);
			if (e->stream)
				stream_poke(e->stream);
			pthread_mutex_unlock(&e->lock);
		}
	}
}

void places_detach(struct places *places)
{
	pthread_mutex_lock(&places->lock);
	atomic_store(&places->detached, true);
	wake_all_locked(places);
	pthread_cond_broadcast(&places->reached);
	pthread_mutex_unlock(&places->lock);
}

/* What nobody waited for stays its owner's; it only loses us. */
static void orphan_execs_locked(struct places *places)
{
	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		for (struct exec *e = places->execs[i]; e; e = e->next)
			e->places = NULL;
		places->execs[i] = NULL;
	}
}

void places_free(struct places *places)
{
	if (!places)
		return;
	places_detach(places);
	pthread_mutex_lock(&places->lock);
	while (places->waiting > 0)
		cond_wait_until(&places->changed, &places->lock, -1);
	pthread_mutex_unlock(&places->lock);
	stop_reconnectors(places);
	pthread_mutex_lock(&places->lock);
	orphan_execs_locked(places);
	pthread_mutex_unlock(&places->lock);
	for (size_t i = 0; i < PLACES_BUCKETS; i++)
		for (struct open_place *p = places->open[i]; p; p = p->next)
			place_drop_link(p);
	keeper_free(steal(places->keeper));
	channel_loop_free(steal(places->loop));
	for (size_t i = 0; i < PLACES_BUCKETS; i++) {
		while (places->open[i]) {
			struct open_place *p = places->open[i];

			places->open[i] = p->next;
			place_unref(p);
		}
	}
	destroy(places);
}

static bool is_of(const struct exec *e, const struct open_place *place, const char *place_id)
{
	return place ? e->place == place : str_equal(e->place->id, place_id);
}

/* Execs of the place: of this holding of it, or of any. */
static size_t count_locked(const struct places *places, const struct open_place *place,
			   const char *place_id, bool waited_only)
{
	size_t count = 0;

	for (size_t i = 0; i < PLACES_BUCKETS; i++)
		for (const struct exec *e = places->execs[i]; e; e = e->next)
			count += is_of(e, place, place_id) && (e->waited || !waited_only);
	return count;
}

bool places_is_busy(struct places *places, const char *place_id)
{
	pthread_mutex_lock(&places->lock);

	bool busy = count_locked(places, NULL, place_id, false) > 0;

	pthread_mutex_unlock(&places->lock);
	return busy;
}

/* Until no thread waits for an exec of it any more; those that nobody waits for cannot leave. */
static void wait_left(struct places *places, struct open_place *place, int64_t deadline)
{
	pthread_mutex_lock(&places->lock);
	while (count_locked(places, place, NULL, true) > 0)
		if (!cond_wait_until(&places->changed, &places->lock, deadline))
			break;
	pthread_mutex_unlock(&places->lock);
}

static struct open_place *take_place(struct places *places, const char *place_id)
{
	struct open_place **p;
	struct open_place *place;

	pthread_mutex_lock(&places->lock);
	p = &places->open[places_bucket(place_id)];
	while (*p && !streq((*p)->id, place_id))
		p = &(*p)->next;
	place = *p;
	if (place)
		*p = place->next;
	pthread_mutex_unlock(&places->lock);
	return place;
}

/* Its execs have calls of their own to be told of; nothing of it is anywhere else. */
static int stop_shell(struct places *places, struct open_place *place, enum exec_reason why,
		      int64_t deadline, struct error *err)
{
	int rc;

	pthread_mutex_lock(&place->lock);
	place->stopped = (int)why;
	pthread_mutex_unlock(&place->lock);
	pthread_mutex_lock(&places->lock);
	for (size_t i = 0; i < PLACES_BUCKETS; i++)
		for (struct exec *e = places->execs[i]; e; e = e->next)
			if (e->place == place)
				shell_exec_cancel(e);
	pthread_mutex_unlock(&places->lock);
	rc = shell_stop(place, deadline, err);
	wait_left(places, place, deadline);
	return rc;
}

static bool is_quiet(struct places *places, const struct open_place *place)
{
	pthread_mutex_lock(&places->lock);

	bool quiet = count_locked(places, place, NULL, false) == 0;

	pthread_mutex_unlock(&places->lock);
	return quiet;
}

/* Through the relay first: so every exec's last output and its exit are heard. */
static void end_execs(struct places *places, struct open_place *place, enum exec_reason why,
		      int64_t deadline)
{
	struct wire_exec_kill_all m = { .reason = reason_to_wire(why) };
	_cleanup_link_ struct link *link = NULL;

	pthread_mutex_lock(&place->lock);
	place->stopped = (int)why;
	pthread_cond_broadcast(&place->changed);
	pthread_mutex_unlock(&place->lock);
	/* Where nobody listens, ending the relay ends everything. */
	if (is_quiet(places, place))
		return;
	link = place_current_link(place);
	if (!link ||
	    link_call(link, WIRE_EXEC_KILL_ALL, &m, WIRE_DONE, NULL, NULL, deadline, NULL) < 0)
		return;
	wait_left(places, place, deadline);
}

/* By the dialer that is given, or by that of the open place; without either on this host. */
static int end_relay(struct places *places, struct open_place *place, const char *place_id,
		     const struct dialer_source *source, int64_t deadline, struct error *err)
{
	struct dialer *dialer = keeper_dialer(places->keeper);

	if (source && source->get ? source->get(source->arg, deadline, &dialer, err) < 0
				  : place && place_dialer(place, deadline, &dialer, err) < 0)
		return -1;
	return dialer->end(dialer, place_id, END_PLACE, deadline, err);
}

int places_stop(struct places *places, const char *place_id, enum exec_reason why, int64_t wait_ms,
		struct error *err)
{
	return places_stop_through(places, place_id, NULL, why, wait_ms, err);
}

int places_stop_through(struct places *places, const char *place_id,
			const struct dialer_source *dialer, enum exec_reason why, int64_t wait_ms,
			struct error *err)
{
	int64_t now = boottime_ms();
	int64_t deadline = now + MAX_OF(wait_ms, 0);
	struct open_place *place = take_place(places, place_id);
	int rc;

	if (place && place_is_shell(place)) {
		rc = stop_shell(places, place, why, deadline, err);
		place_unref(place);
		return rc;
	}
	if (place)
		end_execs(places, place, why,
			  MIN_OF(now + LAST_WORDS_MS, now + MAX_OF(wait_ms, 0) / 2));
	rc = end_relay(places, place, place_id, dialer, deadline, err);
	if (place) {
		place_drop_link(place);
		wait_left(places, place, deadline);
		place_unref(place);
	}
	return rc;
}
