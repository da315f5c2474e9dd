/*
 * The runs service: a dispatcher that gives queued rows of this node a thread each, oldest first,
 * and the table of runs on their way, through which they are cancelled and followed.
 *
 * A row stays `queued` until its place is granted, so the rows are the queue and a crash loses
 * nothing: the next server finds them where they were.
 */
#include "run/service.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "record/activity.h"
#include "run/realize.h"
#include "run/row.h"
#include "workspace/workspace.h"

#define DEFAULT_PARALLEL 256
#define RUN_STACK_BYTES (512 * 1024)
#define TICK_MS 1000
#define LOOK_AHEAD 32

/* The first condition repeats that of the partial index, which SQLite needs to see spelt out. */
SQL(RUN_QUEUE, "SELECT id, status_reason, company_id FROM runs"
	       " WHERE status IN ('queued', 'running', 'scheduled_retry') AND status = 'queued'"
	       " AND node_id = $1 ORDER BY created_at, id LIMIT CAST($2 AS BIGINT)");
/* Of each company only as many as it may have at a time, so that none stands in another's way. */
SQL(RUN_QUEUE_BY_COMPANY,
    "SELECT id, status_reason, company_id FROM (SELECT id, status_reason, company_id, created_at,"
    " ROW_NUMBER() OVER (PARTITION BY company_id ORDER BY created_at, id) AS place FROM runs"
    " WHERE status IN ('queued', 'running', 'scheduled_retry') AND status = 'queued'"
    " AND node_id = $1) AS waiting WHERE place <= CAST($3 AS BIGINT)"
    " ORDER BY created_at, id LIMIT CAST($2 AS BIGINT)");
SQL(RUN_CANCEL_REQUESTS, "SELECT id FROM runs"
			 " WHERE status IN ('queued', 'running', 'scheduled_retry')"
			 " AND node_id = $1 AND cancel_requested_at IS NOT NULL LIMIT 100");
SQL(RUN_REQUEST_CANCEL, "UPDATE runs SET cancel_requested_at = $2, updated_at = $2"
			" WHERE id = $1 AND cancel_requested_at IS NULL"
			" AND status IN ('queued', 'running', 'scheduled_retry')");

int runs_new(const struct runs_options *options, struct runs **out, struct error *err)
{
	struct runs *runs = xcalloc(1, sizeof(*runs));

	runs->stop_fd = latch_new(err);
	runs->rest_fd = latch_new(err);
	if (runs->stop_fd < 0 || runs->rest_fd < 0) {
		close_fdp(&runs->stop_fd);
		close_fdp(&runs->rest_fd);
		free(runs);
		return -1;
	}
	runs->db = options->db;
	runs->clock = options->clock;
	runs->node = options->node;
	runs->leases = options->leases;
	runs->makers = options->makers;
	runs->places = options->places;
	runs->logs = options->logs;
	runs->quota = options->quota;
	runs->max_parallel = options->max_parallel > 0 ? options->max_parallel : DEFAULT_PARALLEL;
	runs->api_url = xstrdup(options->api_url);
	runs->home_path = xstrdup(options->home_path);
	runs->token_key = options->token_key;
	runs->default_place =
		(struct default_place){ options->default_environment, options->sandbox };
	runs->engine = options->engine;
	runs->allow = options->allow;
	pthread_mutex_init(&runs->lock, NULL);
	cond_init(&runs->changed);
	*out = runs;
	return 0;
}

/* With the lock held: waits for a change, at most ms. */
static void wait_changed(struct runs *runs, int64_t ms)
{
	cond_wait_until(&runs->changed, &runs->lock, boottime_ms() + ms);
}

void runs_wake(struct runs *runs)
{
	pthread_mutex_lock(&runs->lock);
	runs->woken = true;
	pthread_cond_broadcast(&runs->changed);
	pthread_mutex_unlock(&runs->lock);
}

bool runs_pause(struct runs *runs, int64_t ms)
{
	int64_t deadline = clock_mono(runs->clock) + ms, left;
	bool go_on;

	pthread_mutex_lock(&runs->lock);
	while (!runs->stopping && (left = deadline - clock_mono(runs->clock)) > 0)
		wait_changed(runs, left);
	go_on = !runs->stopping;
	pthread_mutex_unlock(&runs->lock);
	return go_on;
}

/* ---- following ---- */

int run_watch(struct runs *runs, const char *id, struct error *err)
{
	struct run_watcher *watcher;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), copy;

	if (fd < 0)
		return error_errno(err, errno, "eventfd");
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0) {
		close(fd);
		return error_errno(err, errno, "dup");
	}
	watcher = xcalloc(1, sizeof(*watcher));
	id_copy(watcher->id, id);
	watcher->owner_fd = fd;
	watcher->fd = copy;
	pthread_mutex_lock(&runs->lock);
	watcher->next = runs->watchers;
	runs->watchers = watcher;
	pthread_mutex_unlock(&runs->lock);
	return fd;
}

void run_unwatch(struct runs *runs, const char *id, int fd)
{
	pthread_mutex_lock(&runs->lock);
	for (struct run_watcher **at = &runs->watchers; *at; at = &(*at)->next) {
		struct run_watcher *watcher = *at;

		if (watcher->owner_fd != fd || !streq(watcher->id, id))
			continue;
		*at = watcher->next;
		close(watcher->fd);
		free(watcher);
		break;
	}
	pthread_mutex_unlock(&runs->lock);
	close(fd);
}

void runs_notify(struct runs *runs, const char *run_id)
{
	pthread_mutex_lock(&runs->lock);
	for (struct run_watcher *w = runs->watchers; w; w = w->next) {
		if (streq(w->id, run_id))
			latch_set(w->fd);
	}
	pthread_mutex_unlock(&runs->lock);
}

/* Whichever of the run's two commands is going; asking for one that is not does no harm. */
static void cancel_commands(struct runs *runs, const char *run_id, bool at_once)
{
	char provision_id[ID_SIZE];

	provision_exec_id(run_id, provision_id);
	places_cancel(runs->places, run_id, EXEC_CANCELLED, at_once);
	places_cancel(runs->places, provision_id, EXEC_CANCELLED, at_once);
}

/* ---- dispatching ---- */

static struct run_task *find_task(struct runs *runs, const char *id)
{
	struct run_task *task = runs->tasks;

	while (task && !streq(task->id, id))
		task = task->next;
	return task;
}

bool runs_has(struct runs *runs, const char *run_id)
{
	bool has;

	pthread_mutex_lock(&runs->lock);
	has = find_task(runs, run_id) != NULL;
	pthread_mutex_unlock(&runs->lock);
	return has;
}

void runs_set_progress(struct runs *runs, const char *run_id, const struct workspace_progress *now)
{
	struct run_task *task;

	pthread_mutex_lock(&runs->lock);
	task = find_task(runs, run_id);
	if (task)
		task->progress = !now ? (struct run_progress){ 0 }
				      : (struct run_progress){ now->step, (int64_t)now->files,
							       (int64_t)now->files_total,
							       (int64_t)now->bytes,
							       (int64_t)now->bytes_total };
	pthread_mutex_unlock(&runs->lock);
	runs_notify(runs, run_id);
}

void run_progress(struct runs *runs, const char *id, struct run_progress *out)
{
	const struct run_task *task;

	pthread_mutex_lock(&runs->lock);
	task = find_task(runs, id);
	*out = task ? task->progress : (struct run_progress){ 0 };
	pthread_mutex_unlock(&runs->lock);
}

static void drop_task(struct run_task *task)
{
	struct runs *runs = task->runs;

	pthread_mutex_lock(&runs->lock);
	for (struct run_task **at = &runs->tasks; *at; at = &(*at)->next) {
		if (*at == task) {
			*at = task->next;
			break;
		}
	}
	runs->active--;
	runs->woken = true;
	pthread_cond_broadcast(&runs->changed);
	pthread_mutex_unlock(&runs->lock);
	close(task->cancel_fd);
	free(task);
}

static void *job_run(void *arg)
{
	struct run_task *task = arg;
	struct runs *runs = task->runs;
	_cleanup_run_ struct run run = { 0 };
	_cleanup_error_ struct error err = { 0 };
	struct orchestration o = {
		.runs = runs,
		.db = runs->db,
		.clock = runs->clock,
		.leases = runs->leases,
		.makers = runs->makers,
		.places = runs->places,
		.logs = runs->logs,
		.api_url = runs->api_url,
		.home_path = runs->home_path,
		.token_key = runs->token_key,
		.cancel_fd = task->cancel_fd,
	};

	if (task->search) {
		search_run(task->search, &o);
		search_free(task->search);
	} else if (run_get(runs, task->id, &run, &err) < 0) {
		log_error("run %s could not be read: %s", task->id, err.message);
		runs_pause(runs, TICK_MS); /* not in a tight loop with the dispatcher */
	} else if (run.status == RUN_QUEUED) {
		if (run.cancel_requested_at > 0)
			latch_set(task->cancel_fd);
		orchestrate(&o, &run);
	}
	drop_task(task);
	return NULL;
}

/* False when no thread could be had; the row stays as it is and is tried again. */
static bool start_task(struct runs *runs, const char *id, const char *company_id,
		       struct search *search)
{
	struct run_task *task = xcalloc(1, sizeof(*task));
	_cleanup_error_ struct error err = { 0 };
	pthread_attr_t attr;
	pthread_t thread;
	int failed;

	task->runs = runs;
	task->search = search;
	id_copy(task->id, id);
	id_copy(task->company_id, company_id);
	task->cancel_fd = latch_new(&err);
	if (task->cancel_fd < 0) {
		log_error("run %s cannot start yet: %s", id, err.message);
		free(task);
		return false;
	}
	pthread_mutex_lock(&runs->lock);
	task->next = runs->tasks;
	runs->tasks = task;
	runs->active++;
	pthread_mutex_unlock(&runs->lock);

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, RUN_STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	failed = pthread_create(&thread, &attr, job_run, task);
	pthread_attr_destroy(&attr);
	if (failed) {
		log_error("run %s cannot start yet: no thread: %s", id, strerror(failed));
		drop_task(task);
		return false;
	}
	return true;
}

bool runs_take_up(struct runs *runs, const char *run_id, const char *company_id,
		  struct search *search)
{
	return start_task(runs, run_id, company_id, search);
}

struct queue {
	struct runs *runs;
	char (*ids)[ID_SIZE];
	char (*companies)[ID_SIZE];
	bool *explained; /* the row says already what it waits for */
	size_t count, max;
	char (*cancel)[ID_SIZE];
	size_t cancels;
};

static int read_queue(struct tx *tx, void *arg, struct error *err)
{
	struct queue *q = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	_cleanup_cursor_ struct cursor cancels = { 0 };
	int more;

	q->count = q->cancels = 0;
	if (q->runs->quota.runs > 0
		    ? tx_query(tx, &c, &RUN_QUEUE_BY_COMPANY, err, B_TEXT(q->runs->node->id),
			       B_INT((int64_t)q->max), B_INT(q->runs->quota.runs)) < 0
		    : tx_query(tx, &c, &RUN_QUEUE, err, B_TEXT(q->runs->node->id),
			       B_INT((int64_t)q->max)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0 && q->count < q->max) {
		id_copy(q->ids[q->count], col_text(&c, 0));
		id_copy(q->companies[q->count], col_text(&c, 2));
		q->explained[q->count++] = !col_is_null(&c, 1);
	}
	if (more < 0)
		return -1;
	if (tx_query(tx, &cancels, &RUN_CANCEL_REQUESTS, err, B_TEXT(q->runs->node->id)) < 0)
		return -1;
	while ((more = cursor_next(&cancels, err)) > 0 && q->cancels < 100)
		id_copy(q->cancel[q->cancels++], col_text(&cancels, 0));
	return more < 0 ? -1 : 0;
}

/* A request to cancel may have been written by another node, or by a server that died right after.
 */
static void honour_cancels(struct queue *q)
{
	for (size_t i = 0; i < q->cancels; i++) {
		pthread_mutex_lock(&q->runs->lock);
		struct run_task *task = find_task(q->runs, q->cancel[i]);

		if (task)
			latch_set(task->cancel_fd);
		pthread_mutex_unlock(&q->runs->lock);
		if (task)
			cancel_commands(q->runs, q->cancel[i], false);
	}
}

/* With the lock held. */
static bool company_has_room(const struct runs *runs, const char *company_id)
{
	int64_t count = 0;

	if (runs->quota.runs <= 0)
		return true;
	for (const struct run_task *task = runs->tasks; task; task = task->next)
		count += streq(task->company_id, company_id);
	return count < runs->quota.runs;
}

static void explain_waiting(struct runs *runs, const char *id, bool node_is_full)
{
	_cleanup_free_ char *reason =
		node_is_full
			? xasprintf("all %d run slots of this node are taken", runs->max_parallel)
			: xasprintf("the company has %lld runs going, which is all it may have",
				    (long long)runs->quota.runs);

	run_set_waiting(runs->db, runs->clock, id, NULL, reason, NULL);
}

static void dispatch_once(struct runs *runs)
{
	size_t max = (size_t)runs->max_parallel + LOOK_AHEAD;
	_cleanup_free_ void *ids = xcalloc(max, ID_SIZE);
	_cleanup_free_ void *companies = xcalloc(max, ID_SIZE);
	_cleanup_free_ void *explained = xcalloc(max, sizeof(bool));
	_cleanup_free_ void *cancel = xcalloc(100, ID_SIZE);
	struct queue q = {
		.runs = runs,
		.ids = ids,
		.companies = companies,
		.explained = explained,
		.max = max,
		.cancel = cancel,
	};
	_cleanup_error_ struct error err = { 0 };

	if (db_read(runs->db, read_queue, &q, &err) < 0) {
		log_error("the queue of runs could not be read: %s", err.message);
		return;
	}
	honour_cancels(&q);
	for (size_t i = 0; i < q.count; i++) {
		bool known, room, full;

		pthread_mutex_lock(&runs->lock);
		known = find_task(runs, q.ids[i]) != NULL;
		full = runs->active >= (size_t)runs->max_parallel;
		room = !runs->stopping && !full && company_has_room(runs, q.companies[i]);
		pthread_mutex_unlock(&runs->lock);
		if (known)
			continue;
		if (room) {
			if (!start_task(runs, q.ids[i], q.companies[i], NULL))
				return;
		} else if (!q.explained[i] && !runs->stopping) {
			explain_waiting(runs, q.ids[i], full);
		}
	}
}

static void *dispatch(void *arg)
{
	struct runs *runs = arg;

	for (;;) {
		pthread_mutex_lock(&runs->lock);
		if (!runs->woken && !runs->stopping)
			wait_changed(runs, TICK_MS);
		runs->woken = false;
		bool stopping = runs->stopping;
		pthread_mutex_unlock(&runs->lock);
		if (stopping)
			return NULL;
		dispatch_once(runs);
	}
}

int runs_start(struct runs *runs, struct error *err)
{
	int failed = pthread_create(&runs->dispatcher, NULL, dispatch, runs);

	if (failed)
		return error_errno(err, failed, "cannot start the runs' dispatcher");
	runs->started = true;
	runs_wake(runs);
	return lookout_start(runs, err);
}

size_t runs_active(struct runs *runs)
{
	size_t active;

	pthread_mutex_lock(&runs->lock);
	active = runs->active;
	pthread_mutex_unlock(&runs->lock);
	return active;
}

/* Wakes whoever waits for a place or for a command; neither comes to an end by it. */
static void let_go(struct runs *runs)
{
	pthread_mutex_lock(&runs->lock);
	for (struct run_task *task = runs->tasks; task; task = task->next)
		latch_set(task->cancel_fd);
	pthread_mutex_unlock(&runs->lock);
	latch_set(runs->stop_fd);
	places_detach(runs->places);
}

/* True when no run is left on its way. */
static bool wait_idle(struct runs *runs, int64_t wait_ms)
{
	int64_t deadline = clock_mono(runs->clock) + wait_ms, left;
	bool idle;

	pthread_mutex_lock(&runs->lock);
	while (runs->active > 0 && (left = deadline - clock_mono(runs->clock)) > 0)
		wait_changed(runs, MIN_OF(left, TICK_MS));
	idle = runs->active == 0;
	pthread_mutex_unlock(&runs->lock);
	return idle;
}

void runs_stop(struct runs *runs, bool drain, int64_t wait_ms)
{
	pthread_mutex_lock(&runs->lock);
	runs->stopping = true;
	pthread_cond_broadcast(&runs->changed);
	pthread_mutex_unlock(&runs->lock);
	if (runs->started)
		pthread_join(runs->dispatcher, NULL);
	runs->started = false;
	/* Before anything is let go: what it finds then would look lost. */
	latch_set(runs->rest_fd);
	lookout_stop(runs);
	if (drain && wait_idle(runs, wait_ms))
		return;
	let_go(runs);
	if (!wait_idle(runs, MAX_OF(wait_ms, 15000)))
		log_error("%zu runs did not stop in time; recovery settles them",
			  runs_active(runs));
}

void runs_free(struct runs *runs)
{
	if (!runs)
		return;
	while (runs->watchers) {
		struct run_watcher *watcher = runs->watchers;

		runs->watchers = watcher->next;
		close(watcher->fd);
		free(watcher);
	}
	free(runs->api_url);
	free(runs->home_path);
	close(runs->stop_fd);
	close(runs->rest_fd);
	pthread_cond_destroy(&runs->changed);
	pthread_mutex_destroy(&runs->lock);
	free(runs);
}

/* ---- looking and cancelling ---- */

struct lookup {
	const char *id;
	struct run *run;
};

static int load_run(struct tx *tx, void *arg, struct error *err)
{
	struct lookup *l = arg;

	run_clear(l->run);
	return run_load_tx(tx, l->id, l->run, err);
}

int run_get(struct runs *runs, const char *id, struct run *run, struct error *err)
{
	struct lookup l = { .id = id, .run = run };

	*run = (struct run){ 0 };
	return db_read(runs->db, load_run, &l, err);
}

json_t *run_list(struct runs *runs, const struct run_query *query, struct error *err)
{
	return run_page(runs->db, query, err);
}

struct cancelling {
	const char *id;
	const struct actor *actor;
	struct run *run;
	int64_t now;
	bool again; /* it was asked for before */
};

static int cancelled_activity_tx(struct tx *tx, const struct cancelling *c, struct error *err)
{
	_cleanup_json_ json_t *details = json_object();
	const char *agent_id = id_is_set(c->run->agent_id) ? c->run->agent_id : NULL;

	json_put_str(details, "agentId", agent_id);
	return activity_write_tx(tx, c->now,
				 &(struct activity){ .company_id = c->run->company_id,
						     .actor = c->actor,
						     .action = "heartbeat.cancelled",
						     .entity_type = "heartbeat_run",
						     .entity_id = c->id,
						     .details = details },
				 err);
}

static int request_cancel(struct tx *tx, void *arg, struct error *err)
{
	struct cancelling *c = arg;
	int64_t changed;

	run_clear(c->run);
	changed = tx_exec(tx, &RUN_REQUEST_CANCEL, err, B_TEXT(c->id), B_INT(c->now));
	if (changed < 0 || run_load_tx(tx, c->id, c->run, err) < 0)
		return -1;
	c->again = changed == 0;
	return c->again ? 0 : cancelled_activity_tx(tx, c, err);
}

int run_cancel(struct runs *runs, const struct actor *actor, const char *id, struct run *run,
	       struct error *err)
{
	struct cancelling c = {
		.id = id, .actor = actor, .run = run, .now = clock_now(runs->clock)
	};
	const struct run_ending never_began = {
		.status = RUN_CANCELLED,
		.reason = exec_reason_name(EXEC_CANCELLED),
		.error = "cancelled before it began",
		.error_code = error_code_name(ERR_CANCELLED),
	};
	struct run_task *task;

	*run = (struct run){ 0 };
	if (DB_WRITE(runs->db, "run.cancel", request_cancel, &c, err) < 0)
		return -1;
	if (run_status_is_final(run->status))
		return 0;
	pthread_mutex_lock(&runs->lock);
	task = find_task(runs, id);
	if (task)
		latch_set(task->cancel_fd);
	pthread_mutex_unlock(&runs->lock);
	if (task) {
		cancel_commands(runs, id, c.again);
	} else if (run->status == RUN_QUEUED && streq(run->node_id, runs->node->id)) {
		if (run_set_end(runs->db, runs->clock, id, &never_began, 0, err) < 0)
			return -1;
		runs_notify(runs, id);
	}
	run_clear(run);
	return run_get(runs, id, run, err);
}
