/*
 * What people wait for with a long history behind it, against the same with a short one: two
 * servers side by side, the histories written straight into their databases beforehand.
 *
 *     bench/run history [--runs N]     N runs with their leases, places, events and activity;
 *                                      100,000 unless given
 *
 * Lists are first pages and one from the middle; events are a reader's that was away for a moment;
 * pruning removes the same hundred runs and what belongs to them on either side.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/id.h"
#include "base/mem.h"
#include "base/text.h"
#include "bench.h"
#include "client.h"

#define LONG 100000
#define CYCLES 40
#define PAGE 50
#define PRUNED 100         /* runs that one prune removes */
#define PRUNED_SPACING 60  /* seconds between two of them */
#define EVENTS_KEPT 200000 /* of a company: the server keeps no more */
#define EVENTS_READ 200
#define FIRST_SEQ 1000
#define SEQ_PER_RUN 4
#define MINUTE_MS 60000LL
#define DAY_MS (1440 * MINUTE_MS)

struct side {
	struct bench b;
	struct client client;
	char environment_id[40], company_id[40];
	char middle[80]; /* cursor of a run in the middle of the newer part */
	int64_t runs, now_ms;
	int pruned; /* how many times */
};

/* ---- writing it ---- */

enum { RUN, PLACE, LEASE, ACQUIRED, RELEASED, EVENT, STATEMENTS };
static const char *const INSERT[] = {
	[RUN] = "INSERT INTO runs (id, company_id, environment_id, lease_id, status, command,"
		" exit_code, reason, log_bytes, context, timings, node_id, boot_epoch, created_at,"
		" started_at, finished_at, updated_at)"
		" VALUES (?1, ?2, ?3, ?4, ?7, '[\"sh\",\"-c\",\"make check\"]', 0, 'exited', 0,"
		" '{\"request\":{}}', '{}', 'bench', 1, ?6, ?6, ?6, ?6)",
	[PLACE] = "INSERT INTO places (id, company_id, environment_id, driver, provider,"
		  " provider_ref, state, generation, node_id, boot_epoch, fencing, discoverable,"
		  " created_at, updated_at) VALUES (?5, ?2, ?3, 'sandbox', 'fake',"
		  " 'sandbox://fake/' || ?1 || '/' || ?4, 'gone', 1, 'bench', 1, 'server', 1, ?6,"
		  " ?6)",
	[LEASE] = "INSERT INTO leases (id, company_id, environment_id, place_id, generation,"
		  " status, lease_policy, provider, provider_lease_id, run_id, acquired_at,"
		  " last_used_at, released_at, cleanup_status, node_id, boot_epoch, created_at,"
		  " updated_at) VALUES (?4, ?2, ?3, ?5, 1, 'released', 'ephemeral', 'fake',"
		  " 'sandbox://fake/' || ?1 || '/' || ?4, ?1, ?6, ?6, ?6, 'success', 'bench', 1,"
		  " ?6, ?6)",
	[ACQUIRED] = "INSERT INTO activity (id, seq, company_id, actor_id, action, entity_type,"
		     " entity_id, run_id, details, created_at) VALUES (?8, ?9, ?2, 'bench',"
		     " 'environment.lease_acquired', 'environment_lease', ?4, ?1, '{}', ?6)",
	[RELEASED] = "INSERT INTO activity (id, seq, company_id, actor_id, action, entity_type,"
		     " entity_id, run_id, details, created_at) VALUES (?8, ?9, ?2, 'bench',"
		     " 'environment.lease_released', 'environment_lease', ?4, ?1, '{}', ?6)",
	[EVENT] = "INSERT INTO events (seq, company_id, type, run_id, payload, created_at) VALUES"
		  " (?9, ?2, 'heartbeat.run.status', ?1,"
		  " '{\"runId\":\"' || ?1 || '\",\"status\":\"succeeded\"}', ?6)",
};

struct writer {
	sqlite3 *db;
	sqlite3_stmt *insert[STATEMENTS];
};

static void run_sql(sqlite3 *db, const char *text)
{
	if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
		bench_fail("%s: %s", text, sqlite3_errmsg(db));
}

static void write_row(struct writer *w, int which, int64_t seq)
{
	sqlite3_stmt *stmt = w->insert[which];
	char id[ID_SIZE];
	int seq_at = sqlite3_bind_parameter_index(stmt, "?9");
	int id_at = sqlite3_bind_parameter_index(stmt, "?8");

	id_new(id);
	if (id_at)
		sqlite3_bind_text(stmt, id_at, id, -1, SQLITE_TRANSIENT);
	if (seq_at)
		sqlite3_bind_int64(stmt, seq_at, seq);
	if (sqlite3_step(stmt) != SQLITE_DONE)
		bench_fail("%s", sqlite3_errmsg(w->db));
	sqlite3_reset(stmt);
}

/* The first ones are for pruning, two months ago; the others are of last week. */
static int64_t time_of(const struct side *s, int64_t i)
{
	int64_t old = (int64_t)PRUNED * (s->b.rounds + 3);

	if (i < old)
		return s->now_ms - 60 * DAY_MS + i * PRUNED_SPACING * 1000;
	return s->now_ms - 7 * DAY_MS + (i - old) * 7 * DAY_MS / (s->runs - old + 1);
}

static void write_run(struct writer *w, struct side *s, int64_t i)
{
	char run[ID_SIZE], lease[ID_SIZE], place[ID_SIZE];
	const char *texts[] = { run, s->company_id, s->environment_id, lease, place };
	int64_t when = time_of(s, i), seq = FIRST_SEQ + i * SEQ_PER_RUN;
	bool has_events = (s->runs - i) * 2 <= EVENTS_KEPT;

	id_new(run);
	id_new(lease);
	id_new(place);
	for (int n = 0; n < STATEMENTS; n++) {
		int count = sqlite3_bind_parameter_count(w->insert[n]);

		for (int t = 0; t < 5 && t < count; t++)
			sqlite3_bind_text(w->insert[n], t + 1, texts[t], -1, SQLITE_STATIC);
		sqlite3_bind_int64(w->insert[n], 6, when);
		if (n == RUN)
			sqlite3_bind_text(w->insert[n], 7, i % 10 ? "succeeded" : "failed", -1,
					  SQLITE_STATIC);
	}
	write_row(w, RUN, 0);
	write_row(w, PLACE, 0);
	write_row(w, LEASE, 0);
	write_row(w, ACQUIRED, seq);
	if (has_events)
		write_row(w, EVENT, seq + 1);
	write_row(w, RELEASED, seq + 2);
	if (has_events)
		write_row(w, EVENT, seq + 3);
	if (i == s->runs / 2)
		snprintf(s->middle, sizeof(s->middle), "%lld.%s", (long long)when, run);
}

static void write_history(struct side *s)
{
	_cleanup_free_ char *path = xasprintf("%s/berth.db", s->b.dir);
	_cleanup_free_ char *counter =
		xasprintf("UPDATE counters SET value = %lld WHERE name = 'activity'",
			  (long long)(FIRST_SEQ + (s->runs + 1) * SEQ_PER_RUN));
	struct writer w = { 0 };
	double begin = bench_now();

	if (sqlite3_open(path, &w.db) != SQLITE_OK)
		bench_fail("cannot open %s", path);
	/* Nobody else is there, and what a crash leaves is thrown away. */
	run_sql(w.db, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;"
		      " PRAGMA cache_size = -2000000; BEGIN");
	for (int i = 0; i < STATEMENTS; i++)
		if (sqlite3_prepare_v2(w.db, INSERT[i], -1, &w.insert[i], NULL) != SQLITE_OK)
			bench_fail("%s: %s", INSERT[i], sqlite3_errmsg(w.db));
	for (int64_t i = 0; i < s->runs; i++)
		write_run(&w, s, i);
	run_sql(w.db, counter);
	for (int i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(w.insert[i]);
	run_sql(w.db, "COMMIT; PRAGMA journal_mode = WAL");
	sqlite3_close(w.db);
	printf("%lld runs written in %.1f s\n", (long long)s->runs, bench_now() - begin);
}

static void prepare(struct side *s, int argc, char **argv, int64_t runs)
{
	struct timespec now;
	double begin;

	clock_gettime(CLOCK_REALTIME, &now);
	bench_begin(&s->b, argc, argv);
	s->now_ms = (int64_t)now.tv_sec * 1000;
	s->runs = (int64_t)PRUNED * (s->b.rounds + 3) + 4 * PAGE;
	s->runs = runs > s->runs ? runs : s->runs;
	bench_server_start(&s->b);
	client_open(&s->client, s->b.socket);
	client_setup_fake(&s->client, false, s->environment_id, s->company_id);
	client_close(&s->client);
	bench_server_stop(&s->b);
	write_history(s);
	begin = bench_now();
	bench_server_start(&s->b);
	printf("started in %.0f ms\n", (bench_now() - begin) * 1e3);
	client_open(&s->client, s->b.socket);
}

/* ---- what is measured ---- */

static void ask(struct side *s, const char *path)
{
	if (client_call(&s->client, "GET", path, NULL, NULL) != 200)
		bench_fail("GET %s failed", path);
}

static void list(struct side *s)
{
	_cleanup_free_ char *runs =
		xasprintf("/api/companies/%s/runs?limit=%d", s->company_id, PAGE);
	_cleanup_free_ char *failed = xasprintf("%s&status=failed", runs);
	_cleanup_free_ char *leases =
		xasprintf("/api/environments/%s/leases?limit=%d", s->environment_id, PAGE);
	_cleanup_free_ char *active = xasprintf("%s&status=active", leases);
	_cleanup_free_ char *activity =
		xasprintf("/api/companies/%s/activity?limit=%d", s->company_id, PAGE);

	for (int i = 0; i < CYCLES; i++) {
		ask(s, runs);
		ask(s, failed);
		ask(s, leases);
		ask(s, active);
		ask(s, activity);
	}
}

static void list_middle(struct side *s)
{
	_cleanup_free_ char *path = xasprintf("/api/companies/%s/runs?limit=%d&cursor=%s",
					      s->company_id, PAGE, s->middle);

	for (int i = 0; i < CYCLES / 2; i++)
		ask(s, path);
}

static void acquire(struct side *s)
{
	_cleanup_free_ char *path = xasprintf("/api/environments/%s/leases", s->environment_id);

	for (int i = 0; i < CYCLES; i++) {
		json_t *lease = client_json(&s->client, "POST", path, "{}", 201);

		client_release(&s->client, json_str(lease, "id"));
		json_decref(lease);
	}
}

/* Connects, and has read what came since it was here. */
static void events(struct side *s)
{
	long long from = FIRST_SEQ + s->runs * SEQ_PER_RUN - EVENTS_READ;
	static char text[1 << 20];

	for (int i = 0; i < CYCLES / 4; i++) {
		struct client c;
		size_t len = 0, seen = 0;

		client_open(&c, s->b.socket);
		dprintf(c.fd,
			"GET /api/companies/%s/events HTTP/1.1\r\nHost: localhost\r\n"
			"Last-Event-ID: %lld\r\n\r\n",
			s->company_id, from);
		while (seen < EVENTS_READ) {
			ssize_t n = recv(c.fd, text + len, sizeof(text) - 1 - len, 0);

			if (n <= 0)
				bench_fail("only %zu events came: %.300s", seen, text);
			len += (size_t)n;
			text[len] = '\0';
			seen = 0;
			for (char *at = text; (at = strstr(at, "\nid: ")); at++)
				seen++;
		}
		client_close(&c);
	}
}

static void prune(struct side *s)
{
	long long before = s->now_ms / 1000 - 60 * 86400 +
			   (long long)PRUNED * PRUNED_SPACING * ++s->pruned - PRUNED_SPACING / 2;
	_cleanup_free_ char *body =
		xasprintf("{\"olderThanSeconds\": %lld}", (long long)time(NULL) - before);
	json_t *gone = client_json(&s->client, "POST", "/api/prune", body, 200);

	if (json_int(gone, "runs", 0) != PRUNED)
		bench_fail("%lld runs were pruned, not %d", (long long)json_int(gone, "runs", 0),
			   PRUNED);
	json_decref(gone);
}

static const struct op {
	const char *name;
	void (*work)(struct side *s);
} OPS[] = {
	{ "history-list", list },       { "history-middle", list_middle },
	{ "history-acquire", acquire }, { "history-events", events },
	{ "history-prune", prune },
};

struct meeting {
	struct side sides[2];
	const struct op *op;
};

static double timed(struct meeting *m, int side)
{
	double begin = bench_now();

	m->op->work(&m->sides[side]);
	return bench_now() - begin;
}

static double ours(struct bench *b, void *arg)
{
	(void)b;
	return timed(arg, 0);
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	return timed(arg, 1);
}

/* Takes --runs N out of the words. */
static int64_t wanted_runs(int *argc, char **argv)
{
	int64_t runs = LONG;

	for (int i = 1; i + 1 < *argc; i++) {
		if (!streq(argv[i], "--runs"))
			continue;
		if (!parse_i64(argv[i + 1], 1, 100000000, &runs))
			bench_fail("--runs wants a number");
		memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 1) * sizeof(*argv));
		*argc -= 2;
	}
	return runs;
}

int main(int argc, char **argv)
{
	static struct meeting m;
	int64_t runs = wanted_runs(&argc, argv);
	double ratios[ARRAY_SIZE(OPS)], worst = 0;

	prepare(&m.sides[0], argc, argv, runs);
	prepare(&m.sides[1], argc, argv, 0);
	for (size_t i = 0; i < ARRAY_SIZE(OPS); i++) {
		m.op = &OPS[i];
		printf("%s\n", m.op->name);
		ratios[i] = bench_compare(&m.sides[0].b, ours, peer, &m);
		worst = ratios[i] > worst ? ratios[i] : worst;
	}
	for (int i = 0; i < 2; i++) {
		client_close(&m.sides[i].client);
		bench_end(&m.sides[i].b);
	}
	for (size_t i = 0; i < ARRAY_SIZE(OPS); i++)
		bench_print(OPS[i].name, ratios[i]);
	bench_print("history", worst);
	return 0;
}
