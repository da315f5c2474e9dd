/*
 * A whole server without its HTTP, in a directory of its own: real database, real fake provider,
 * real processes. Closing and opening it again is a restart.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "record/workspace.h"
#include "run/run.h"
#include "run/service.h"
#include "../open_places.h"

struct world {
	char dir[64];
	int dirfd, spool_fd, logs_fd, providers_fd;
	struct clock clock;
	struct node node;
	struct db *db;
	struct places *places;
	struct maker_host host;
	struct makers makers;
	struct leases *leases;
	struct runlog_store *logs;
	struct runs *runs;
	int max_parallel;
	void (*change)(struct makers *makers); /* what is different, from the next open */
	struct company company;
};

static inline int subdirectory(struct world *w, const char *name)
{
	int fd = -1;

	assert_int_equal(dir_make(w->dirfd, name, 0700, NULL), 0);
	assert_int_equal(dir_open(w->dirfd, name, &fd, NULL), 0);
	return fd;
}

#define assert_ok(call)                                                                            \
	do {                                                                                       \
		struct error _e = { 0 };                                                           \
		struct error *err = &_e;                                                           \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%s)", #call, _e.message, error_code_name(_e.code));      \
		(void)err;                                                                         \
	} while (0)

/* Everything up to but not including the dispatcher. */
static inline void world_open(struct world *w)
{
	_cleanup_free_ char *database = path_join(w->dir, "berth.db");
	_cleanup_free_ char *providers = path_join(w->dir, "providers");
	static char home[128];

	snprintf(home, sizeof(home), "%s/home", w->dir);
	assert_ok(db_open(&w->db, &(struct db_options){ .path = database }, err));
	assert_ok(node_register(w->db, &w->clock, w->dirfd, &w->node, err));
	assert_ok(test_places_new(&w->clock, w->node.id, w->node.boot_epoch, w->dir, &w->places,
				  err));
	w->host = (struct maker_host){ .places = w->places,
				       .clock = &w->clock,
				       .home_path = home,
				       .db = w->db,
				       .allow_fake = true };
	assert_ok(maker_store_new(w->providers_fd, providers, &w->host.store, err));
	makers_init(&w->makers, &w->host);
	if (w->change)
		w->change(&w->makers);
	assert_ok(leases_new(&(struct leases_options){ .db = w->db,
						       .clock = &w->clock,
						       .node = &w->node,
						       .makers = &w->makers,
						       .spool_dirfd = w->spool_fd,
						       .sweep_ms = 50,
						       .cleanup_base_ms = 20 },
			     &w->leases, err));
	assert_ok(runlog_store_open(w->logs_fd, 0, &w->logs, err));
	assert_ok(runs_new(&(struct runs_options){ .db = w->db,
						   .clock = &w->clock,
						   .node = &w->node,
						   .leases = w->leases,
						   .makers = &w->makers,
						   .places = w->places,
						   .logs = w->logs,
						   .max_parallel = w->max_parallel,
						   .default_environment = "Local",
						   .home_path = home },
			   &w->runs, err));
	assert_ok(leases_recover(w->leases, err));
	assert_ok(runs_recover(w->runs, err));
}

static inline void world_start(struct world *w)
{
	assert_ok(leases_start(w->leases, err));
	assert_ok(runs_start(w->runs, err));
}

static inline void world_close(struct world *w)
{
	runs_stop(w->runs, false, 10000);
	leases_stop(w->leases);
	runs_free(w->runs);
	leases_free(w->leases);
	runlog_store_close(w->logs);
	maker_store_free(w->host.store);
	places_free(w->places);
	makers_clear(&w->makers);
	db_close(w->db);
}

static inline int world_setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	snprintf(w->dir, sizeof(w->dir), "/tmp/berth-run.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	assert_ok(dir_open(AT_FDCWD, w->dir, &w->dirfd, err));
	w->spool_fd = subdirectory(w, "spool");
	w->logs_fd = subdirectory(w, "logs");
	w->providers_fd = subdirectory(w, "providers");
	clock_init_system(&w->clock);
	world_open(w);
	assert_ok(company_create(WRITER(w->db, &w->clock, &ACTOR_SYSTEM), "acme", NULL, &w->company,
				 err));
	*state = w;
	return 0;
}

static inline int world_teardown(void **state)
{
	struct world *w = *state;

	world_close(w);
	end_keeper(w->dir);
	company_clear(&w->company);
	close(w->spool_fd);
	close(w->logs_fd);
	close(w->providers_fd);
	close(w->dirfd);
	dir_remove_tree(AT_FDCWD, w->dir, NULL);
	free(w);
	return 0;
}

/* An environment straight into the store; returns its id. */
static inline void add_environment(struct world *w, const char *name, enum driver_kind driver,
				   const char *config, const char *metadata, char id[ID_SIZE])
{
	struct environment in = { .name = (char *)name, .driver = driver }, out = { 0 };

	id_copy(in.company_id, w->company.id);
	in.config = json_parse(config, strlen(config), NULL);
	in.metadata = metadata ? json_parse(metadata, strlen(metadata), NULL) : NULL;
	assert_ok(environment_create(w->db, &w->clock, &ACTOR_SYSTEM, &in, &out, err));
	id_copy(id, out.id);
	json_decref(in.config);
	json_decref(in.metadata);
	environment_clear(&out);
}

static inline void submit(struct world *w, const char *body_text, struct run *run)
{
	_cleanup_json_ json_t *body = json_parse(body_text, strlen(body_text), NULL);

	assert_non_null(body);
	assert_ok(fields_check(RUN_FIELDS, body, err));
	assert_ok(run_create(w->runs, &ACTOR_SYSTEM, NULL, w->company.id, body, run, err));
}

/* Waits for a final status and for the timings written after the leases were released. */
static inline void await_run(struct world *w, const char *id, struct run *run)
{
	int fd = run_watch(w->runs, id, NULL);
	int64_t deadline = clock_mono(&w->clock) + 20000;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		run_clear(run);
		assert_ok(run_get(w->runs, id, run, err));
		if (run_status_is_final(run->status) && json_object_get(run->timings, "releasedMs"))
			break;
		if (clock_mono(&w->clock) > deadline)
			fail_msg("run %s is still %s", id, run_status_name(run->status));
		poll(&p, 1, 100);
		latch_clear(fd);
	}
	run_unwatch(w->runs, id, fd);
}

static inline void run_to_end(struct world *w, const char *body, struct run *run)
{
	char id[ID_SIZE];

	submit(w, body, run);
	id_copy(id, run->id);
	await_run(w, id, run);
}

/* The whole output of one stream of a run. */
static inline char *output_of(struct world *w, const char *run_id, enum runlog_stream stream)
{
	struct runlog_reader *reader = NULL;
	struct runlog_chunk chunk;
	struct buf text = { 0 };

	assert_ok(runlog_reader_open(w->logs, run_id, 0, &reader, err));
	while (runlog_read(reader, 65536, &chunk, NULL) > 0) {
		if (chunk.stream == stream)
			buf_append(&text, chunk.data, chunk.len);
	}
	runlog_reader_close(reader);
	return buf_steal(&text);
}

#define assert_output(w, id, want)                                                                 \
	do {                                                                                       \
		_cleanup_free_ char *_text = output_of(w, id, RUNLOG_STDOUT);                      \
		assert_string_equal(_text, want);                                                  \
	} while (0)
