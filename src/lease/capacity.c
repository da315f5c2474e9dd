/*
 * Who may try to acquire, in the order in which they came.
 *
 * What is scarce has a key: the company when companies have a limit on leases, the environment when
 * it has one, else the provider's name of the place (a reusable place has one holder; a place of
 * one's own is never scarce). Requests that found no room wait in one list; of those with the same
 * key only the first tries again, and a newcomer does not try while somebody waits. It tries when
 * something of its environment was released in this process and at least twice a second, because
 * other nodes release too.
 *
 * The decision itself is made in the transaction that writes the intent (intend.c): this queue only
 * gives the order, never the permission.
 */
#include "lease/lease_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"
#include "record/row.h"

#define RETRY_MS 500

SQL(CAPACITY_LEASES, "SELECT COUNT(*) FROM leases WHERE environment_id = $1"
		     " AND " LEASES_OPEN " AND status <> 'retained'");
SQL(CAPACITY_INTENTS, "SELECT COUNT(*) FROM intents WHERE environment_id = $1 AND state = 'open'");

SQL(CAPACITY_COMPANY_LEASES, "SELECT COUNT(*) FROM leases WHERE company_id = $1"
			     " AND " LEASES_OPEN " AND status <> 'retained'");
SQL(CAPACITY_COMPANY_INTENTS,
    "SELECT COUNT(*) FROM intents WHERE company_id = $1 AND state = 'open'");

int company_fits(struct tx *tx, const char *company_id, int64_t max, int64_t *used,
		 struct error *err)
{
	int64_t leases, intents;

	*used = 0;
	if (max <= 0)
		return 1;
	if (number_tx(tx, &CAPACITY_COMPANY_LEASES, &leases, err, B_TEXT(company_id)) < 0 ||
	    number_tx(tx, &CAPACITY_COMPANY_INTENTS, &intents, err, B_TEXT(company_id)) < 0)
		return -1;
	*used = leases + intents;
	return *used < max;
}

int capacity_fits(struct tx *tx, const char *environment_id, int64_t max, int64_t *used,
		  struct error *err)
{
	int64_t leases, intents;

	*used = 0;
	if (max <= 0)
		return 1;
	if (number_tx(tx, &CAPACITY_LEASES, &leases, err, B_TEXT(environment_id)) < 0 ||
	    number_tx(tx, &CAPACITY_INTENTS, &intents, err, B_TEXT(environment_id)) < 0)
		return -1;
	*used = leases + intents;
	return *used < max;
}

/* With the lock: the first waiter of a key, or NULL. */
static struct waiter *first_of(const struct leases *leases, const char *key)
{
	struct waiter *w = leases->waiters;

	while (w && !streq(w->key, key))
		w = w->next;
	return w;
}

static void append(struct leases *leases, struct waiter *waiter)
{
	struct waiter **end = &leases->waiters;

	while (*end)
		end = &(*end)->next;
	waiter->next = NULL;
	*end = waiter;
}

static void take_out(struct leases *leases, const struct waiter *waiter)
{
	struct waiter **w = &leases->waiters;

	while (*w && *w != waiter)
		w = &(*w)->next;
	if (*w)
		*w = waiter->next;
}

void turn_begin(struct turn *turn, struct leases *leases, const char *key,
		const struct lease_request *request)
{
	*turn = (struct turn){ .leases = leases,
			       .waiter.latch = -1,
			       .cancel_fd = request->cancel_fd };
	snprintf(turn->waiter.key, sizeof(turn->waiter.key), "%s", key);
	id_copy(turn->waiter.environment_id, request->environment->id);
	turn->deadline = request->wait_ms < 0 ? -1 : clock_mono(leases->clock) + request->wait_ms;
}

bool turn_is_mine(struct turn *turn)
{
	struct leases *leases = turn->leases;
	const struct waiter *first;

	pthread_mutex_lock(&leases->lock);
	first = first_of(leases, turn->waiter.key);
	turn->seen = leases->releases;
	turn->waiter.woken = false;
	pthread_mutex_unlock(&leases->lock);
	return !first || first == &turn->waiter;
}

static int enqueue(struct turn *turn, struct error *err)
{
	turn->waiter.latch = latch_new(err);
	if (turn->waiter.latch < 0)
		return -1;
	pthread_mutex_lock(&turn->leases->lock);
	append(turn->leases, &turn->waiter);
	/* Something was released between the look at the rows and now. */
	turn->waiter.woken = turn->leases->releases != turn->seen;
	pthread_mutex_unlock(&turn->leases->lock);
	turn->queued = true;
	return 0;
}

/* What has happened by now; -2: nothing worth trying for. */
static int look(struct turn *turn, struct error *err)
{
	struct leases *leases = turn->leases;
	int answer = -2;

	pthread_mutex_lock(&leases->lock);
	if (leases->stopping)
		answer = error_set(err, ERR_UNAVAILABLE, "the server is stopping");
	else if (turn->waiter.woken && first_of(leases, turn->waiter.key) == &turn->waiter)
		answer = 0;
	else
		latch_clear(turn->waiter.latch);
	pthread_mutex_unlock(&leases->lock);
	return answer;
}

int turn_wait(struct turn *turn, struct error *err)
{
	struct pollfd fds[2] = { { .events = POLLIN },
				 { .fd = turn->cancel_fd, .events = POLLIN } };

	if (!turn->queued && enqueue(turn, err) < 0)
		return -1;
	fds[0].fd = turn->waiter.latch;
	for (;;) {
		int answer = look(turn, err);
		int64_t left = turn->deadline < 0
				       ? RETRY_MS
				       : turn->deadline - clock_mono(turn->leases->clock);

		if (answer != -2)
			return answer;
		if (left <= 0)
			return 1;
		/* A fake clock stands still meanwhile: the pause itself is real time. */
		int ready = poll(fds, 2, (int)MIN_OF(left, RETRY_MS));

		if (ready < 0 && errno != EINTR)
			return error_errno(err, errno, "waiting for capacity");
		if (ready > 0 && fds[1].revents)
			return error_set(err, ERR_CANCELLED, "cancelled while waiting for a place");
		if (ready == 0 && turn_is_mine(turn))
			return 0;
	}
}

void turn_end(struct turn *turn)
{
	struct leases *leases = turn->leases;

	if (turn->queued) {
		pthread_mutex_lock(&leases->lock);
		take_out(leases, &turn->waiter);
		pthread_mutex_unlock(&leases->lock);
		close_fdp(&turn->waiter.latch);
		turn->queued = false;
		/* There may be room for the next one as well. */
		capacity_changed(leases, turn->waiter.environment_id);
	}
}

size_t waiters_count(struct leases *leases, const char *key)
{
	size_t n = 0;

	pthread_mutex_lock(&leases->lock);
	for (const struct waiter *w = leases->waiters; w; w = w->next)
		n += !key || streq(w->key, key);
	pthread_mutex_unlock(&leases->lock);
	return n;
}

void capacity_changed(struct leases *leases, const char *environment_id)
{
	pthread_mutex_lock(&leases->lock);
	leases->releases++;
	for (struct waiter *w = leases->waiters; w; w = w->next) {
		if ((environment_id && !streq(w->environment_id, environment_id)) ||
		    first_of(leases, w->key) != w)
			continue;
		w->woken = true;
		latch_set(w->latch);
	}
	pthread_mutex_unlock(&leases->lock);
}
