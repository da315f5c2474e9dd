/*
 * What a monitor reads. Counters and histograms are kept where things happen; what is a state and
 * not an event (leases, queues, memory) is looked up when somebody asks.
 */
#include "exec/execs.h"
#include "api/answer.h"
#include "base/fd.h"
#include "base/metric.h"
#include "base/text.h"
#include "live/feed.h"
#include "record/row.h"

SQL(METRIC_RUNS, "SELECT status, COUNT(*) FROM runs"
		 " WHERE status IN ('queued', 'running', 'scheduled_retry') GROUP BY status");
SQL(METRIC_LEASES, "SELECT status, COUNT(*) FROM leases"
		   " WHERE " LEASES_OPEN " GROUP BY status");
SQL(METRIC_PLACES, "SELECT state, COUNT(*) FROM places WHERE state <> 'gone' GROUP BY state");

/* A line per word, those that no row has with 0: a series that comes and goes is hard to watch. */
static int write_by_state(struct tx *tx, const struct sql *sql, struct buf *out, const char *name,
			  const char *label, const char *const *words, struct error *err)
{
	int64_t counts[16] = { 0 };
	struct cursor c;
	int more;

	if (tx_query(tx, &c, sql, err) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0)
		for (size_t i = 0; words[i] && i < ARRAY_SIZE(counts); i++)
			if (streq(words[i], col_text(&c, 0)))
				counts[i] = col_int(&c, 1);
	cursor_close(&c);
	for (size_t i = 0; more == 0 && words[i] && i < ARRAY_SIZE(counts); i++) {
		_cleanup_buf_ struct buf labels = { 0 };

		metric_label(&labels, label, words[i]);
		metric_write_value(out, name, buf_str(&labels), counts[i]);
	}
	return more;
}

static int write_rows(struct tx *tx, void *arg, struct error *err)
{
	static const char *const LEASES[] = { "active", "pending_cleanup", "retained", NULL };
	static const char *const PLACES[] = { "held",     "resuming", "releasing", "free",
					      "retained", "cleanup",  NULL };
	static const char *const RUNS[] = { "queued", "running", "scheduled_retry", NULL };
	struct buf *out = arg;

	/* The closure may run twice. */
	buf_reset(out);
	metric_write_head(out, "berth_leases", "gauge", "Leases that are not over, by status");
	if (write_by_state(tx, &METRIC_LEASES, out, "berth_leases", "status", LEASES, err) < 0)
		return -1;
	metric_write_head(out, "berth_places", "gauge", "Places that are not gone, by state");
	if (write_by_state(tx, &METRIC_PLACES, out, "berth_places", "state", PLACES, err) < 0)
		return -1;
	metric_write_head(out, "berth_runs", "gauge", "Runs that are not over, by status");
	return write_by_state(tx, &METRIC_RUNS, out, "berth_runs", "status", RUNS, err);
}

static void gauge(struct buf *out, const char *name, const char *help, int64_t value)
{
	metric_write_head(out, name, "gauge", help);
	metric_write_value(out, name, "", value);
}

static void write_server(struct server *server, struct buf *out)
{
	_cleanup_json_ json_t *counts = leases_counts(server->leases, NULL);
	_cleanup_buf_ struct buf labels = { 0 };

	metric_label(&labels, "version", BERTH_VERSION);
	metric_label(&labels, "node", server->node.id);
	metric_write_head(out, "berth_info", "gauge", "Which server this is");
	metric_write_value(out, "berth_info", buf_str(&labels), 1);
	gauge(out, "berth_uptime_seconds", "Since the server started",
	      (clock_now(&server->clock) - server->started_at) / 1000);
	gauge(out, "berth_runs_active", "Runs that have a thread here",
	      (int64_t)runs_active(server->runs));
	gauge(out, "berth_execs_active", "Running commands that were started over the API",
	      (int64_t)execs_active(server->execs));
	gauge(out, "berth_lease_waiters", "Requests that wait for a place",
	      json_int(counts, "waiting", 0));
	gauge(out, "berth_intents", "Acquisitions whose end is not recorded yet",
	      json_int(counts, "intents", 0));
	gauge(out, "berth_cleanup_backlog", "Places whose teardown is still owed",
	      json_int(counts, "cleanup", 0));
	gauge(out, "berth_http_connections", "Open connections",
	      (int64_t)http_connections(server->http));
	gauge(out, "berth_event_readers", "Connections that follow events",
	      (int64_t)feed_readers(server->feed));
	gauge(out, "berth_clock_drift_milliseconds", "The wall clock against the server's own",
	      server->clock.drift_ms(&server->clock));
	gauge(out, "berth_disk_free_bytes", "Where the data directory is",
	      dir_free_bytes(server->data_dirfd));
}

/* A database that does not answer is told as such; the rest is worth the more then. */
static int show(void *arg, struct request *request, struct response *response, struct error *err)
{
	struct server *server = arg;
	_cleanup_buf_ struct buf out = { 0 }, rows = { 0 };
	_cleanup_error_ struct error why = { 0 };
	bool up = db_read(server->db, write_rows, &rows, &why) == 0;
	(void)request;
	(void)err;

	gauge(&out, "berth_db_up", "Whether the database answers", up);
	if (up)
		buf_append(&out, rows.data, rows.len);
	write_server(server, &out);
	http_metrics(server->http, &out);
	metrics_write(&out);
	metrics_write_process(&out);
	response->text = buf_steal(&out);
	response->content_type = "text/plain; version=0.0.4; charset=utf-8";
	return 0;
}

#define METRICS_ROUTE(who)                                                                         \
	{                                                                                          \
		HTTP_GET, "/metrics", .access = who, .run = show, .answer = "text/plain",          \
				      .summary = "Metrics in Prometheus format"                    \
	}
ROUTES(METRICS_ROUTES, 220) = { METRICS_ROUTE(ACCESS_METRICS), { 0 } };
const struct route METRICS_PUBLIC_ROUTES[] = { METRICS_ROUTE(ACCESS_PUBLIC), { 0 } };
