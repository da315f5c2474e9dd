#include "../base/tempdir.h"
#include "base/id.h"
#include "base/text.h"
#include "filetree/entry.h"

static int order(const char *a, const char *b)
{
	int x = tree_path_compare(a, strlen(a), b, strlen(b));

	assert_int_equal(x<0, tree_path_compare(b, strlen(b), a, strlen(a))> 0);
	return x;
}

static void a_directory_comes_right_before_what_is_in_it(void **state)
{
	(void)state;
	assert_true(order("a", "a/b") < 0);
	assert_true(order("a/b", "a!") < 0);
	assert_true(order("a/z", "a-b") < 0);
	assert_true(order("a/\xff", "a\x01") < 0);
	assert_true(order("a", "b") < 0);
	assert_true(order("a\x7f", "a\x80") < 0);
	assert_true(order("a/b", "a/b") == 0);
}

static void paths_that_could_lead_elsewhere_are_none(void **state)
{
	static const char *const bad[] = { "",   "/",    "/a",   "a/",    "a//b", ".",
					   "..", "a/..", "../a", "a/./b", "./a",  "a/../b" };
	static const char *const good[] = { "a", "a/b", "...", "..a", ".a", "a\nb", "\xff/\x01" };
	char name[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(tree_path_is_valid(bad[i], strlen(bad[i])));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(tree_path_is_valid(good[i], strlen(good[i])));
	assert_false(tree_path_is_valid("a\0b", 3));
	memset(name, 'x', sizeof(name));
	assert_true(tree_path_is_valid(name, 255));
	assert_false(tree_path_is_valid(name, 256));
	assert_true(tree_path_is_within("a/b", 3, "a", 1));
	assert_true(tree_path_is_within("a", 1, "a", 1));
	assert_false(tree_path_is_within("ab", 2, "a", 1));
}

static struct tree_entry sample(enum tree_type type)
{
	struct tree_entry e = {
		.path = "d/\xfe name\n",
		.path_len = 9,
		.type = type,
		.mode = 04755,
		.mtime_ns = 1700000000123456789,
		.ctime_ns = 1700000001123456789,
		.dev = UINT64_MAX,
		.ino = 77,
	};

	if (type == TREE_FILE) {
		e.size = (uint64_t)5 << 40;
		e.links = 3;
		e.flags = TREE_HAS_HASH | TREE_RACY;
		memset(e.sha256, 0xa5, sizeof(e.sha256));
	}
	if (type == TREE_SYMLINK) {
		e.target = "../../\xff";
		e.target_len = 7;
	}
	return e;
}

static void what_is_encoded_is_decoded(void **state)
{
	(void)state;
	for (int type = TREE_NONE; type <= TREE_SPECIAL; type++) {
		struct tree_entry in = sample((enum tree_type)type), out;
		_cleanup_buf_ struct buf b = { 0 };

		tree_entry_encode(&b, &in);
		assert_true(b.len <= TREE_RECORD_MAX);
		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(tree_entry_decode(b.data, len, &out, NULL), 0);
		assert_int_equal(tree_entry_decode(b.data, b.len, &out, NULL), (ssize_t)b.len);
		assert_int_equal(out.path_len, in.path_len);
		assert_memory_equal(out.path, in.path, in.path_len + 1);
		assert_int_equal(out.target_len, in.target_len);
		if (in.target)
			assert_string_equal(out.target, in.target);
		assert_int_equal(out.links, in.links);
		assert_int_equal(out.flags, in.flags);
		assert_memory_equal(out.sha256, in.sha256, TREE_HASH_SIZE);
		out.flags = in.flags = 0;
		assert_true(tree_entry_same_state(&in, &out));
	}
}

/* Whatever a place sends in the place of a record, it is refused or valid, and nothing is read
 * beyond it. */
static void damaged_records_are_refused(void **state)
{
	unsigned seed = 3, refused = 0;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct tree_entry in = sample((enum tree_type)(round % 5)), out;
		_cleanup_buf_ struct buf b = { 0 };
		struct error err = { 0 };

		tree_entry_encode(&b, &in);

		size_t len = b.len;
		_cleanup_free_ char *exact = xmalloc(len);

		memcpy(exact, b.data, len);
		exact[(size_t)rand_r(&seed) % len] = (char)rand_r(&seed);

		ssize_t n = tree_entry_decode(exact, len, &out, &err);

		if (n < 0) {
			assert_int_equal(err.code, ERR_PROTOCOL);
			refused++;
		} else if (n > 0) {
			assert_true((size_t)n <= len);
			assert_true(tree_path_is_valid(out.path, out.path_len));
			assert_int_equal(out.path[out.path_len], 0);
		}
	}
	assert_true(refused > 1000);
}

static void a_link_without_a_target_and_a_hash_without_a_file_are_refused(void **state)
{
	struct tree_entry in = sample(TREE_DIR), out;
	_cleanup_buf_ struct buf b = { 0 };

	(void)state;
	in.flags = TREE_HAS_HASH;
	tree_entry_encode(&b, &in);
	assert_int_equal(tree_entry_decode(b.data, b.len, &out, NULL), -1);
	buf_reset(&b);
	in = sample(TREE_SYMLINK);
	in.target_len = 0;
	tree_entry_encode(&b, &in);
	assert_int_equal(tree_entry_decode(b.data, b.len, &out, NULL), -1);
	buf_reset(&b);
	in = sample(TREE_FILE);
	in.path = "../x";
	in.path_len = 4;
	tree_entry_encode(&b, &in);
	assert_int_equal(tree_entry_decode(b.data, b.len, &out, NULL), -1);
}

static void content_is_what_can_be_seen_and_state_is_everything(void **state)
{
	struct tree_entry a = sample(TREE_FILE), b = a;

	(void)state;
	b.flags = a.flags = TREE_HAS_HASH;
	assert_true(tree_entry_same_state(&a, &b));
	b.ctime_ns++;
	assert_false(tree_entry_same_state(&a, &b));
	assert_true(tree_entry_same_content(&a, &b));
	b.sha256[31] ^= 1;
	assert_false(tree_entry_same_content(&a, &b));
	b = a;
	b.flags = 0;
	assert_false(tree_entry_same_content(&a, &b));
	b = a;
	b.flags |= TREE_RACY;
	assert_false(tree_entry_same_state(&a, &b));
	a = sample(TREE_DIR);
	b = a;
	b.mode = 0;
	assert_true(tree_entry_same_content(&a, &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_comes_right_before_what_is_in_it),
		cmocka_unit_test(paths_that_could_lead_elsewhere_are_none),
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(damaged_records_are_refused),
		cmocka_unit_test(a_link_without_a_target_and_a_hash_without_a_file_are_refused),
		cmocka_unit_test(content_is_what_can_be_seen_and_state_is_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
