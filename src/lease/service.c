/*
 * The service and its sweep thread.
 *
 * Locks: `lock` is the only one of this room and a leaf: it is held for list operations only, never
 * across a call to a driver, the database, an open place or a callback, and no other lock is taken
 * under it. One sweep runs at a time by the flag `sweeping`, not by a lock, because sweeps block.
 */
#include "lease/lease_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define DEFAULT_SWEEP_MS 1000
#define DEFAULT_CLEANUP_BASE_MS 1000
#define DEFAULT_RECONCILE_MS 30000
#define SWEEP_STACK_BYTES (512 * 1024)
/* One in so many does what can wait. */
#define WAITING_SWEEPS 5u

int leases_new(const struct leases_options *o, struct leases **out, struct error *err)
{
	struct leases *leases = xcalloc(1, sizeof(*leases));

	leases->db = o->db;
	leases->clock = o->clock;
	leases->max_per_company = o->max_per_company;
	leases->allow = o->allow;
	leases->absence_ms = o->absence_ms;
	leases->node = *o->node;
	leases->makers = o->makers;
	leases->sweep_ms = o->sweep_ms > 0 ? o->sweep_ms : DEFAULT_SWEEP_MS;
	leases->reconcile_ms = o->reconcile_ms > 0 ? o->reconcile_ms : DEFAULT_RECONCILE_MS;
	leases->cleanup_base_ms =
		o->cleanup_base_ms > 0 ? o->cleanup_base_ms : DEFAULT_CLEANUP_BASE_MS;
	leases->default_retain_ms =
		o->default_retain_ms > 0 ? o->default_retain_ms : DEFAULT_RETAIN_MS;
	leases->spool_dirfd = fcntl(o->spool_dirfd, F_DUPFD_CLOEXEC, 3);
	if (leases->spool_dirfd < 0) {
		free(leases);
		return error_errno(err, errno, "the spool directory");
	}
	pthread_mutex_init(&leases->lock, NULL);
	cond_init(&leases->changed);
	*out = leases;
	return 0;
}

void leases_free(struct leases *leases)
{
	if (!leases)
		return;
	leases_stop(leases);
	close_fdp(&leases->spool_dirfd);
	strv_free(leases->sighted);
	strv_free(leases->closed);
	claims_free(leases);
	pthread_cond_destroy(&leases->changed);
	pthread_mutex_destroy(&leases->lock);
	free(leases);
}

void flight_begin(struct leases *leases, struct flight *flight, const char *lease_id)
{
	id_copy(flight->lease_id, lease_id);
	pthread_mutex_lock(&leases->lock);
	flight->next = leases->flights;
	leases->flights = flight;
	pthread_mutex_unlock(&leases->lock);
}

void flight_end(struct leases *leases, struct flight *flight)
{
	struct flight **f = &leases->flights;

	pthread_mutex_lock(&leases->lock);
	while (*f && *f != flight)
		f = &(*f)->next;
	if (*f)
		*f = flight->next;
	pthread_mutex_unlock(&leases->lock);
}

bool flight_is_under_way(struct leases *leases, const char *lease_id)
{
	const struct flight *f;

	pthread_mutex_lock(&leases->lock);
	for (f = leases->flights; f && !streq(f->lease_id, lease_id); f = f->next)
		;
	pthread_mutex_unlock(&leases->lock);
	return f != NULL;
}

static int reconcile_when_due(struct leases *leases, struct error *err)
{
	int64_t now = clock_mono(leases->clock);

	if (leases->reconciled_at > 0 && now - leases->reconciled_at < leases->reconcile_ms)
		return 0;
	leases->reconciled_at = now;
	return reconcile(leases, false, err);
}

/*
 * In this order: what is found is queued before the queue is worked on. What looks at every open
 * lease and can wait is done with every few sweeps only, or an idle server would not be idle.
 */
static const struct {
	const char *name;
	int (*run)(struct leases *leases, struct error *err);
	bool can_wait;
} STEPS[] = {
	{ "closed places", open_closed_places, false },
	{ "flushing the spool", spool_flush, false },
	{ "expiry", expire_leases, false },
	{ "leases of ended runs", end_ownerless_leases, true },
	{ "retention", end_retention, false },
	{ "free places", retire_free_places, false },
	{ "interrupted acquires", settle_intents, false },
	{ "interrupted releases", queue_interrupted_places, false },
	{ "cleanup", cleanup_due, false },
	{ "reconciling", reconcile_when_due, false },
};

static void begin_sweep(struct leases *leases)
{
	pthread_mutex_lock(&leases->lock);
	while (leases->sweeping)
		pthread_cond_wait(&leases->changed, &leases->lock);
	leases->sweeping = true;
	pthread_mutex_unlock(&leases->lock);
}

static void end_sweep(struct leases *leases)
{
	pthread_mutex_lock(&leases->lock);
	leases->sweeping = false;
	pthread_cond_broadcast(&leases->changed);
	pthread_mutex_unlock(&leases->lock);
}

static int sweep(struct leases *leases, bool all, struct error *err)
{
	int result = 0;

	begin_sweep(leases);
	for (size_t i = 0; i < ARRAY_SIZE(STEPS); i++) {
		_cleanup_error_ struct error why = { 0 };

		if ((STEPS[i].can_wait && !all) || STEPS[i].run(leases, &why) == 0)
			continue;
		error_wrap(&why, "%s", STEPS[i].name);
		log_warn("sweep: %s", why.message);
		if (result == 0)
			error_move(err, &why);
		result = -1;
	}
	end_sweep(leases);
	return result;
}

int leases_sweep(struct leases *leases, struct error *err)
{
	return sweep(leases, true, err);
}

/* False when it is time to go. */
static bool pause_sweeping(struct leases *leases)
{
	int64_t until = boottime_ms() + leases->sweep_ms;
	bool stopping;

	pthread_mutex_lock(&leases->lock);
	while (!leases->stopping && cond_wait_until(&leases->changed, &leases->lock, until))
		;
	stopping = leases->stopping;
	pthread_mutex_unlock(&leases->lock);
	return !stopping;
}

static void *sweep_thread(void *arg)
{
	struct leases *leases = arg;
	unsigned count = 0;

	do {
		/* A server that has just started has an earlier one's work to finish. */
		bool all = count < WAITING_SWEEPS || count % WAITING_SWEEPS == 0;

		sweep(leases, all, NULL);
		count++;
	} while (pause_sweeping(leases));
	return NULL;
}

int leases_start(struct leases *leases, struct error *err)
{
	pthread_attr_t attr;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, SWEEP_STACK_BYTES);
	r = pthread_create(&leases->thread, &attr, sweep_thread, leases);
	pthread_attr_destroy(&attr);
	if (r != 0)
		return error_errno(err, r, "starting the sweep thread");
	leases->started = true;
	return 0;
}

void leases_stop(struct leases *leases)
{
	pthread_mutex_lock(&leases->lock);
	leases->stopping = true;
	pthread_cond_broadcast(&leases->changed);
	for (struct waiter *w = leases->waiters; w; w = w->next)
		latch_set(w->latch);
	pthread_mutex_unlock(&leases->lock);
	if (leases->started)
		pthread_join(leases->thread, NULL);
	leases->started = false;
}
