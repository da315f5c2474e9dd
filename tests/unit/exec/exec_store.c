#include "exec/exec_store.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/text.h"

struct place {
	char dir[64];
	int dirfd;
	struct exec_store store[2]; /* plain, durable */
};

static int up(void **state)
{
	struct place *place = xcalloc(1, sizeof(*place));

	snprintf(place->dir, sizeof(place->dir), "/tmp/berth-store-XXXXXX");
	assert_non_null(mkdtemp(place->dir));
	assert_int_equal(dir_open(AT_FDCWD, place->dir, &place->dirfd, NULL), 0);
	assert_int_equal(
		exec_store_open(&place->store[0], place->dirfd, "plain", "logs0", 0, false, NULL),
		0);
	assert_int_equal(
		exec_store_open(&place->store[1], place->dirfd, "durable", "logs1", 0, true, NULL),
		0);
	*state = place;
	return 0;
}

static int down(void **state)
{
	struct place *place = *state;

	exec_store_close(&place->store[0]);
	exec_store_close(&place->store[1]);
	close(place->dirfd);
	assert_int_equal(dir_remove_tree(AT_FDCWD, place->dir, NULL), 0);
	free(place);
	return 0;
}

static json_t *record_of(const char *status, int64_t code)
{
	json_t *record = json_object();

	json_put_str(record, "placeId", "somewhere");
	json_put_str(record, "status", status);
	if (code >= 0)
		json_put_int(record, "exitCode", code);
	return record;
}

static void put(struct exec_store *store, const char *id, json_t *record)
{
	assert_int_equal(exec_store_put(store, id, record, NULL), 0);
	json_decref(record);
}

static void a_record_is_there_until_it_is_removed_with_its_log(void **state)
{
	struct place *place = *state;

	for (size_t i = 0; i < 2; i++) {
		struct exec_store *store = &place->store[i];
		_cleanup_json_ json_t *ended = record_of("ended, at last", 3), *got = NULL;
		struct runlog *log;
		char id[ID_SIZE];

		id_new(id);
		assert_null(exec_store_get(store, id));
		put(store, id, record_of("running", -1));
		assert_int_equal(runlog_open(store->logs, id, &log, NULL), 0);
		assert_int_equal(runlog_append(log, RUNLOG_STDOUT, "hi", 2, 1, NULL), 0);
		runlog_close(log);
		assert_int_equal(exec_store_put(store, id, ended, NULL), 0);
		got = exec_store_get(store, id);
		assert_true(json_equal(got, ended));
		assert_int_equal(runlog_size(store->logs, id), 2);
		assert_int_equal(exec_store_remove(store, id, NULL), 0);
		assert_null(exec_store_get(store, id));
		assert_int_equal(runlog_size(store->logs, id), -1);
		assert_int_equal(exec_store_remove(store, id, NULL), 0);
	}
}

static void what_was_not_written_whole_is_no_record(void **state)
{
	struct place *place = *state;
	static const char *const BROKEN[] = { "", "{\"status\": \"runn", "[]", "\0\0\0\0" };

	for (size_t i = 0; i < ARRAY_SIZE(BROKEN); i++) {
		char id[ID_SIZE];

		id_new(id);
		assert_int_equal(file_replace(place->store[0].dirfd, id, BROKEN[i],
					      MAX_OF(strlen(BROKEN[i]), i == 3 ? 4 : 0), 0600,
					      NULL),
				 0);
		assert_null(exec_store_get(&place->store[0], id));
	}
}

static void names_that_are_no_ids_reach_no_file(void **state)
{
	struct place *place = *state;

	assert_int_equal(file_replace(place->dirfd, "secret", "{}", 2, 0600, NULL), 0);
	assert_null(exec_store_get(&place->store[0], "../secret"));
	assert_null(exec_store_get(&place->store[0], "."));
	assert_null(exec_store_get(&place->store[0], ""));
}

struct seen {
	char ids[8][ID_SIZE];
	size_t count, stop_at;
};

static int see(void *arg, const char *id, int64_t changed_ms, struct error *err)
{
	struct seen *seen = arg;

	assert_true(changed_ms > 0);
	if (seen->count == seen->stop_at)
		return error_set(err, ERR_CANCELLED, "enough");
	id_copy(seen->ids[seen->count++], id);
	return 0;
}

static void all_are_visited_oldest_first(void **state)
{
	struct place *place = *state;
	struct seen seen = { .stop_at = 8 }, first = { .stop_at = 1 };
	_cleanup_error_ struct error err = { 0 };
	char ids[3][ID_SIZE];
	static const time_t AGES[] = { 2000, 1000, 3000 };

	for (size_t i = 0; i < 3; i++) {
		const struct timespec times[] = { { .tv_sec = AGES[i] }, { .tv_sec = AGES[i] } };

		id_new(ids[i]);
		put(&place->store[0], ids[i], record_of("running", -1));
		assert_int_equal(utimensat(place->store[0].dirfd, ids[i], times, 0), 0);
	}
	assert_int_equal(file_replace(place->store[0].dirfd, "stranger", "x", 1, 0600, NULL), 0);
	assert_int_equal(exec_store_each(&place->store[0], see, &seen, &err), 0);
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.ids[0], ids[1]);
	assert_string_equal(seen.ids[1], ids[0]);
	assert_string_equal(seen.ids[2], ids[2]);
	assert_int_equal(exec_store_each(&place->store[0], see, &first, &err), -1);
	assert_int_equal(err.code, ERR_CANCELLED);
}

#define exec_store_test(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		exec_store_test(a_record_is_there_until_it_is_removed_with_its_log),
		exec_store_test(what_was_not_written_whole_is_no_record),
		exec_store_test(names_that_are_no_ids_reach_no_file),
		exec_store_test(all_are_visited_oldest_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
