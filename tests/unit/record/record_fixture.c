#include "record_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include "base/fd.h"
#include "base/log.h"
#include "pg_fixture.h"

const struct actor SOMEBODY = { .type = "user", .id = "local", .kind = ACTOR_LOCAL };

static struct records *records_new(void)
{
	struct records *r = xcalloc(1, sizeof(*r));

	log_set_level(LOG_WARN_);
	snprintf(r->dir, sizeof(r->dir), "/tmp/berth-record-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	assert_done(r, dir_open(AT_FDCWD, r->dir, &r->dirfd, &r->err));
	clock_init_fake(&r->fake, RECORDS_START_MS);
	r->clock = &r->fake.clock;
	return r;
}

static void records_open(struct records *r)
{
	assert_done(r, db_open(&r->db, &r->options, &r->err));
	assert_done(r, company_create(WRITER(r->db, r->clock, &SOMEBODY), "Acme", NULL, &r->company,
				      &r->err));
}

int records_setup_sqlite(void **state)
{
	struct records *r = records_new();

	*state = r;
	r->path = xasprintf("%s/berth.db", r->dir);
	r->options.path = r->path;
	records_open(r);
	return 0;
}

int records_setup_postgres(void **state)
{
	*state = NULL;
	if (!pg_fixture_start())
		return 0;

	struct records *r = records_new();

	*state = r;
	r->url = pg_fixture_migrated_database();
	r->options.url = r->url;
	records_open(r);
	return 0;
}

int records_teardown(void **state)
{
	struct records *r = *state;

	if (!r)
		return 0;
	db_close(r->db);
	company_clear(&r->company);
	close(r->dirfd);
	dir_remove_tree(AT_FDCWD, r->dir, NULL);
	error_clear(&r->err);
	free(r->path);
	free(r->url);
	free(r);
	return 0;
}

struct records *records_of(void **state)
{
	if (!*state)
		skip();
	return *state;
}

struct statement {
	const struct sql *sql;
	const struct bind *binds;
	int64_t number;
	char *text;
};

static int run_statement(struct tx *tx, void *arg, struct error *err)
{
	struct statement *s = arg;

	s->number = tx_exec_(tx, s->sql, s->binds, err);
	return s->number < 0 ? -1 : 0;
}

static int run_query(struct tx *tx, void *arg, struct error *err)
{
	struct statement *s = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query_(tx, &c, s->sql, s->binds, err) < 0)
		return -1;

	int r = cursor_next(&c, err);

	free(steal(s->text));
	s->number = r > 0 ? col_int(&c, 0) : -1;
	s->text = r > 0 ? xstrdup(col_text(&c, 0)) : NULL;
	return r < 0 ? -1 : 0;
}

int64_t records_exec_(struct records *r, const struct sql *sql, const struct bind *binds)
{
	struct statement s = { .sql = sql, .binds = binds };
	_cleanup_error_ struct error err = { 0 };

	if (DB_WRITE(r->db, "test.statement", run_statement, &s, &err) < 0)
		fail_msg("%s: %s", sql->name, err.message);
	return s.number;
}

/* With an error of its own, so that a test can look at the one it provoked afterwards. */
static struct statement query(struct records *r, const struct sql *sql, const struct bind *binds)
{
	struct statement s = { .sql = sql, .binds = binds };
	_cleanup_error_ struct error err = { 0 };

	if (db_read(r->db, run_query, &s, &err) < 0)
		fail_msg("%s: %s", sql->name, err.message);
	return s;
}

int64_t records_number_(struct records *r, const struct sql *sql, const struct bind *binds)
{
	struct statement s = query(r, sql, binds);

	free(s.text);
	return s.number;
}

char *records_text_(struct records *r, const struct sql *sql, const struct bind *binds)
{
	return query(r, sql, binds).text;
}

json_t *json_of(const char *text)
{
	_cleanup_free_ char *quoted = xstrdup(text);
	_cleanup_error_ struct error err = { 0 };

	for (char *p = quoted; *p; p++) {
		if (*p == '\'')
			*p = '"';
	}

	json_t *value = json_parse(quoted, strlen(quoted), &err);

	if (!value)
		fail_msg("%s: %s", text, err.message);
	return value;
}

void assert_json(const json_t *value, const char *expected)
{
	_cleanup_json_ json_t *wanted = json_of(expected);
	_cleanup_free_ char *have = json_canonical(value), *want = json_canonical(wanted);

	assert_string_equal(have, want);
}

void records_environment(struct records *r, const char *name, enum driver_kind driver,
			 struct environment *out)
{
	struct environment in = { .name = (char *)name, .driver = driver };

	id_copy(in.company_id, r->company.id);
	assert_done(r, environment_create(r->db, r->clock, &SOMEBODY, &in, out, &r->err));
}

json_t *records_activity(struct records *r)
{
	struct activity_query query = { .company_id = r->company.id, .limit = 500 };
	_cleanup_json_ json_t *answer = activity_list(r->db, &query, &r->err);

	if (!answer)
		fail_msg("%s", r->err.message);
	return json_incref(json_array_at(answer, "items"));
}

struct parallel {
	void (*fn)(int number, void *arg);
	void *arg;
	pthread_barrier_t *barrier;
	int number;
};

static void *parallel_main(void *arg)
{
	struct parallel *p = arg;

	pthread_barrier_wait(p->barrier);
	p->fn(p->number, p->arg);
	return NULL;
}

#define THREADS_MAX 16

void in_parallel(int threads, void (*fn)(int number, void *arg), void *arg)
{
	struct parallel parts[THREADS_MAX];
	pthread_t ids[THREADS_MAX];
	pthread_barrier_t barrier;

	assert_true(threads <= THREADS_MAX);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		parts[i] = (struct parallel){ fn, arg, &barrier, i };
		assert_int_equal(pthread_create(&ids[i], NULL, parallel_main, &parts[i]), 0);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&barrier);
}
