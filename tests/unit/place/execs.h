/*
 * An places over a real keeper and real relays, with one open place and a store of logs, all in a
 * test's own directory.
 */
#pragma once

#include "../base/tempdir.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"
#include "place/exec.h"

#define PLACE "the-place"
#define GENERATION 3
#define PATIENCE_MS 20000

struct execs {
	struct tempdir *dir;
	struct clock clock;
	struct runlog_store *logs;
	struct places *places;
	int64_t boot_epoch;
	char owner[64];
	char runtime[96];
};

static inline const char *program(const char *variable, const char *otherwise)
{
	const char *path = getenv(variable);

	return path && path[0] ? path : otherwise;
}

static inline int exec_adopt(struct places *places, const struct exec_spec *spec,
			     struct exec **exec, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	if (exec_expect(places, spec, exec, err) < 0)
		return -1;
	if (exec_attach(*exec, PATIENCE_MS, &why) == 0)
		return 0;
	exec_abandon(*exec);
	error_move(err, &why);
	return -1;
}

/* A server that starts: the next boot epoch. */
static inline void server_starts(struct execs *t)
{
	struct error err = { 0 };
	struct places_options options = {
		.clock = &t->clock,
		.owner = t->owner,
		.boot_epoch = ++t->boot_epoch,
		.runtime_path = t->runtime,
		.keeper_path = program("BERTH_KEEPER", TEST_KEEPER),
		.relay_path = program("BERTH_RELAY", TEST_RELAY),
		.absence_ms = 60000,
	};

	if (places_new(&options, &t->places, &err) < 0)
		fail_msg("%s", err.message);
}

static inline struct exec_place place_with(const char *id, int64_t generation)
{
	struct exec_place place = { .place_id = id, .generation = generation };

	memset(place.key, (int)(generation & 0xff), sizeof(place.key));
	return place;
}

static inline void open_place(struct execs *t, const char *id, int64_t generation)
{
	struct exec_place place = place_with(id, generation);

	assert_int_equal(places_open(t->places, &place, NULL), 0);
}

static inline int execs_setup(void **state)
{
	struct execs *t = calloc(1, sizeof(*t));
	void *dir;

	assert_non_null(t);
	tempdir_open(&dir);
	t->dir = dir;
	clock_init_system(&t->clock);
	snprintf(t->owner, sizeof(t->owner), "node-of-the-test-%d", (int)getpid());
	snprintf(t->runtime, sizeof(t->runtime), "%s/run", t->dir->path);
	assert_int_equal(runlog_store_open(t->dir->fd, 0, &t->logs, NULL), 0);
	server_starts(t);
	open_place(t, PLACE, GENERATION);
	*state = t;
	return 0;
}

static inline bool is_alive(pid_t pid)
{
	unsigned long long start_time = process_start_time(pid);

	return start_time != 0 && process_is(pid, start_time);
}

/* Waits for a condition, never for luck. */
#define wait_until(condition)                                                                      \
	do {                                                                                       \
		bool _met = false;                                                                 \
		for (int _ms = 0; !(_met = (condition)) && _ms < PATIENCE_MS; _ms += 5)            \
			poll(NULL, 0, 5);                                                          \
		assert_true(_met);                                                                 \
	} while (0)

static inline pid_t keeper_pid(struct execs *t)
{
	_cleanup_json_ json_t *health = places_health(t->places);

	return (pid_t)json_int(json_object_at(health, "keeper"), "pid", 0);
}

/* Nothing of a test may be left: every place is ended, then the keeper, which is ours. */
static inline int execs_teardown(void **state)
{
	struct execs *t = *state;
	struct error err = { 0 };
	void *dir = t->dir;
	pid_t keeper;

	if (places_reap(t->places, NULL, 0, &err) < 0)
		fail_msg("%s", err.message);
	keeper = keeper_pid(t);
	places_free(t->places);
	if (keeper > 0) {
		kill(keeper, SIGTERM);
		for (int i = 0; i < PATIENCE_MS / 5 && is_alive(keeper); i++)
			poll(NULL, 0, 5);
		waitpid(keeper, NULL, 0);
	}
	runlog_store_close(t->logs);
	tempdir_teardown(&dir);
	free(t);
	return 0;
}

#define with_execs(test) cmocka_unit_test_setup_teardown(test, execs_setup, execs_teardown)

/* One exec with its own log, named like it. */
struct going {
	struct exec_spec spec;
	char id[ID_SIZE];
	struct runlog *log;
	struct exec *exec;
	struct exec_result result;
	struct error err;
	int rc;
	pthread_t thread;
};

#define COMMAND(...) ((char *const[]){ __VA_ARGS__, NULL })
#define SHELL_COMMAND(script) COMMAND((char *)"/bin/sh", (char *)"-c", (char *)(script))

static inline void prepare(struct execs *t, struct going *g, char *const *argv)
{
	*g = (struct going){ 0 };
	id_new(g->id);
	assert_int_equal(runlog_open(t->logs, g->id, &g->log, NULL), 0);
	g->spec = (struct exec_spec){
		.exec_id = g->id,
		.place_id = PLACE,
		.generation = GENERATION,
		.argv = argv,
		.cwd = t->dir->path,
		.log = g->log,
	};
}

static inline void start(struct execs *t, struct going *g)
{
	if (exec_start(t->places, &g->spec, &g->exec, &g->err) < 0)
		fail_msg("%s", g->err.message);
}

static inline void adopt(struct execs *t, struct going *g)
{
	assert_int_equal(runlog_open(t->logs, g->id, &g->log, NULL), 0);
	g->spec.log = g->log;
	if (exec_adopt(t->places, &g->spec, &g->exec, &g->err) < 0)
		fail_msg("%s", g->err.message);
}

static inline void expect_refused(struct execs *t, struct going *g, enum error_code code)
{
	assert_int_equal(exec_start(t->places, &g->spec, &g->exec, &g->err), -1);
	assert_null(g->exec);
	if (g->err.code != code)
		fail_msg("%s: %s", error_code_name(g->err.code), g->err.message);
	runlog_close(g->log);
}

static inline void *wait_in_thread(void *arg)
{
	struct going *g = arg;

	g->rc = exec_wait(g->exec, &g->result, &g->err);
	runlog_close(g->log);
	return NULL;
}

static inline void spawn_wait(struct going *g)
{
	assert_int_equal(pthread_create(&g->thread, NULL, wait_in_thread, g), 0);
}

static inline void start_in_thread(struct execs *t, struct going *g)
{
	start(t, g);
	spawn_wait(g);
}

static inline void join(struct going *g)
{
	assert_int_equal(pthread_join(g->thread, NULL), 0);
	if (g->rc < 0)
		fail_msg("%s", g->err.message);
}

static inline void run(struct execs *t, struct going *g)
{
	start(t, g);
	wait_in_thread(g);
	if (g->rc < 0)
		fail_msg("%s", g->err.message);
}

/* All of one stream; checks on the way that offsets follow each other. */
static inline void read_output(struct execs *t, const struct going *g, enum runlog_stream stream,
			       struct buf *out)
{
	struct runlog_reader *reader;
	struct runlog_chunk chunk;
	int64_t next = 0;
	int rc;

	assert_int_equal(runlog_reader_open(t->logs, g->id, 0, &reader, NULL), 0);
	while ((rc = runlog_read(reader, 1 << 16, &chunk, NULL)) == 1) {
		assert_int_equal(chunk.offset, next);
		next += (int64_t)chunk.len;
		if (chunk.stream != stream)
			continue;
		if (stream != RUNLOG_PTY)
			assert_int_equal(chunk.stream_offset, out->len);
		buf_append(out, chunk.data, chunk.len);
	}
	assert_int_equal(rc, 0);
	runlog_reader_close(reader);
}

static inline void expect_output(struct execs *t, const struct going *g, enum runlog_stream stream,
				 const char *text)
{
	_cleanup_buf_ struct buf got = { 0 };

	read_output(t, g, stream, &got);
	assert_string_equal(buf_str(&got), text);
}

/* The number a script wrote to a file of the test's directory, 0 while it has not. */
static inline pid_t pid_in(struct execs *t, const char *file)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (file_read(t->dir->fd, file, &text, 64, NULL) < 0 || !strchr(buf_str(&text), '\n'))
		return 0;
	return (pid_t)atoi(buf_str(&text));
}

/* The relay of a place, as its keeper wrote it down. */
static inline pid_t relay_pid(struct execs *t, const char *place_id)
{
	char path[128];

	snprintf(path, sizeof(path), "run/places/%s/relay", place_id);
	return pid_in(t, path);
}
