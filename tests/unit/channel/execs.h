/* An executor with one open place and a store of logs in a test's own directory. */
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
#include "channel/exec.h"

#define OWNER "node-of-the-test"
#define PLACE "the-place"
#define GENERATION 3
#define PATIENCE_MS 20000

struct execs {
	struct tempdir *dir;
	struct clock clock;
	struct runlog_store *logs;
	struct executor *executor;
	char owner[64];
};

static inline int execs_setup(void **state)
{
	struct execs *t = calloc(1, sizeof(*t));
	void *dir;

	assert_non_null(t);
	tempdir_open(&dir);
	t->dir = dir;
	clock_init_system(&t->clock);
	/* Tests run side by side; none may find the processes of another. */
	snprintf(t->owner, sizeof(t->owner), OWNER "-%d", (int)getpid());
	assert_int_equal(runlog_store_open(t->dir->fd, 0, &t->logs, NULL), 0);
	assert_int_equal(executor_new(&t->clock, t->owner, &t->executor, NULL), 0);
	executor_open_place(t->executor, PLACE, GENERATION);
	*state = t;
	return 0;
}

static inline int execs_teardown(void **state)
{
	struct execs *t = *state;
	void *dir = t->dir;

	executor_free(t->executor);
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
	if (exec_start(t->executor, &g->spec, &g->exec, &g->err) < 0)
		fail_msg("%s", g->err.message);
}

static inline void expect_refused(struct execs *t, struct going *g, enum error_code code)
{
	assert_int_equal(exec_start(t->executor, &g->spec, &g->exec, &g->err), -1);
	assert_null(g->exec);
	assert_int_equal(g->err.code, code);
	runlog_close(g->log);
}

static inline void *wait_in_thread(void *arg)
{
	struct going *g = arg;

	g->rc = exec_wait(g->exec, &g->result, &g->err);
	runlog_close(g->log);
	return NULL;
}

static inline void start_in_thread(struct execs *t, struct going *g)
{
	start(t, g);
	assert_int_equal(pthread_create(&g->thread, NULL, wait_in_thread, g), 0);
}

static inline void join(struct going *g)
{
	assert_int_equal(pthread_join(g->thread, NULL), 0);
	assert_int_equal(g->rc, 0);
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

/* Waits for a condition, never for luck. */
#define wait_until(condition)                                                                      \
	do {                                                                                       \
		bool _met = false;                                                                 \
		for (int _ms = 0; !(_met = (condition)) && _ms < PATIENCE_MS; _ms += 5)            \
			poll(NULL, 0, 5);                                                          \
		assert_true(_met);                                                                 \
	} while (0)

/* The number a script wrote to a file of the test's directory, 0 while it has not. */
static inline pid_t pid_in(struct execs *t, const char *file)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (file_read(t->dir->fd, file, &text, 64, NULL) < 0 || !strchr(buf_str(&text), '\n'))
		return 0;
	return (pid_t)atoi(buf_str(&text));
}

static inline bool is_alive(pid_t pid)
{
	unsigned long long start_time = process_start_time(pid);

	return start_time != 0 && process_is(pid, start_time);
}
