#include "../base/tempdir.h"
#include "base/fd.h"
#include "base/text.h"
#include "workspace/manifest.h"

static void add(struct manifest_writer *w, const char *path, uint64_t size)
{
	struct tree_entry e = {
		.path = path,
		.path_len = (uint32_t)strlen(path),
		.type = TREE_FILE,
		.size = size,
		.ctime_ns = size,
	};

	assert_int_equal(manifest_add(w, &e, NULL), 0);
}

static void write_many(struct tempdir *t, const char *name, int count)
{
	struct manifest_writer *w;
	char path[64];

	assert_int_equal(manifest_create(t->fd, name, &w, NULL), 0);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "dir%03d/file%06d", i / 100, i);
		add(w, path, (uint64_t)i);
	}
	manifest_racy_from(w, 4000);
	assert_int_equal(manifest_commit(w, NULL), 0);
}

static void entries_are_read_in_order_and_found_by_path(void **state)
{
	struct tempdir *t = *state;
	_cleanup_manifest_ struct manifest *m = NULL;
	struct manifest_cursor cursor = { 0 };
	struct tree_entry e;
	char path[64];
	int count = 0;

	write_many(t, "m", 5000);
	assert_int_equal(manifest_open(t->fd, "m", &m, NULL), 0);
	assert_int_equal(manifest_count(m), 5000);
	assert_int_equal(manifest_bytes(m), 4999 * 5000 / 2);
	cursor.m = m;
	for (; manifest_next(&cursor, &e); count++) {
		assert_int_equal(e.size, count);
		assert_int_equal(!!(e.flags & TREE_RACY), count >= 4000);
	}
	assert_int_equal(count, 5000);
	for (int i = 0; i < 5000; i += 7) {
		snprintf(path, sizeof(path), "dir%03d/file%06d", i / 100, i);
		assert_true(manifest_find(m, path, strlen(path), &e));
		assert_int_equal(e.size, i);
		snprintf(path, sizeof(path), "dir%03d/file%06dx", i / 100, i);
		assert_false(manifest_find(m, path, strlen(path), &e));
	}
	assert_false(manifest_find(m, "a", 1, &e));
	assert_false(manifest_find(m, "z", 1, &e));
}

static void an_empty_one_is_one(void **state)
{
	struct tempdir *t = *state;
	_cleanup_manifest_ struct manifest *m = NULL;
	struct manifest_cursor cursor = { 0 };
	struct tree_entry e;

	write_many(t, "m", 0);
	assert_int_equal(manifest_open(t->fd, "m", &m, NULL), 0);
	cursor.m = m;
	assert_false(manifest_next(&cursor, &e));
	assert_false(manifest_find(m, "a", 1, &e));
	cursor.m = NULL;
	assert_false(manifest_next(&cursor, &e));
}

static void what_is_out_of_order_is_not_written(void **state)
{
	struct tempdir *t = *state;
	struct manifest_writer *w;
	struct tree_entry e = { .path = "b", .path_len = 1, .type = TREE_FILE };
	struct error err = { 0 };

	assert_int_equal(manifest_create(t->fd, "m", &w, NULL), 0);
	assert_int_equal(manifest_add(w, &e, NULL), 0);
	assert_int_equal(manifest_add(w, &e, &err), -1);
	assert_int_equal(err.code, ERR_INTERNAL);
	manifest_abandon(w);
	assert_false(exists_at(t->fd, "m"));
}

static void any_damage_is_noticed(void **state)
{
	struct tempdir *t = *state;
	_cleanup_buf_ struct buf whole = { 0 };
	unsigned seed = 5;

	write_many(t, "m", 200);
	assert_int_equal(file_read(t->fd, "m", &whole, 1 << 20, NULL), 0);
	for (int i = 0; i < 300; i++) {
		struct manifest *m = NULL;
		struct error err = { 0 };
		size_t len = whole.len, at = (size_t)rand_r(&seed) % len;

		if (i % 2)
			len = at;
		else
			whole.data[at] ^= 1;
		assert_int_equal(file_replace(t->fd, "d", whole.data, len, 0600, NULL), 0);
		assert_int_equal(manifest_open(t->fd, "d", &m, &err), -1);
		assert_int_equal(err.code, ERR_IO);
		assert_non_null(strstr(err.message, "damaged"));
		if (i % 2 == 0)
			whole.data[at] ^= 1;
	}
}

static void sharing_gives_the_same_file_and_replaces(void **state)
{
	struct tempdir *t = *state;
	_cleanup_manifest_ struct manifest *m = NULL;
	struct error err = { 0 };

	write_many(t, "a", 10);
	write_many(t, "b", 20);
	assert_false(manifest_is_same(t->fd, "a", t->fd, "b"));
	assert_int_equal(manifest_share(t->fd, "a", t->fd, "b", NULL), 0);
	assert_true(manifest_is_same(t->fd, "a", t->fd, "b"));
	assert_int_equal(manifest_share(t->fd, "a", t->fd, "b", NULL), 0);
	assert_int_equal(unlinkat(t->fd, "a", 0), 0);
	assert_int_equal(manifest_open(t->fd, "b", &m, NULL), 0);
	assert_int_equal(manifest_count(m), 10);
	assert_int_equal(manifest_share(t->fd, "a", t->fd, "c", &err), -1);
	assert_int_equal(err.errnum, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_tempdir(entries_are_read_in_order_and_found_by_path),
		with_tempdir(an_empty_one_is_one),
		with_tempdir(what_is_out_of_order_is_not_written),
		with_tempdir(any_damage_is_noticed),
		with_tempdir(sharing_gives_the_same_file_and_replaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
