#include "../base/tempdir.h"

#include "base/text.h"
#include "workspace/merge.h"

/* Every kind of thing a path can be, for the table below. */
enum thing { NONE, DIR_, FILE_A, FILE_B, FILE_AX, LINK_A, LINK_B, SPECIAL, THINGS };

static struct tree_entry entry_of(enum thing thing)
{
	struct tree_entry e = { .path = "p", .path_len = 1 };

	switch (thing) {
	case NONE:
		break;
	case DIR_:
		e.type = TREE_DIR;
		break;
	case FILE_A:
	case FILE_AX:
	case FILE_B:
		e.type = TREE_FILE;
		e.mode = thing == FILE_AX ? 0755 : 0644;
		e.size = 3;
		e.flags = TREE_HAS_HASH;
		e.sha256[0] = thing == FILE_B;
		e.ino = thing;
		break;
	case LINK_A:
	case LINK_B:
		e.type = TREE_SYMLINK;
		e.target = thing == LINK_A ? "a" : "b";
		e.target_len = 1;
		break;
	case SPECIAL:
		e.type = TREE_SPECIAL;
		break;
	case THINGS:
		break;
	}
	return e;
}

static bool equal(enum thing a, enum thing b)
{
	return a == b && a != SPECIAL;
}

/* The rules of apply.h, written down once more. */
static enum merge_verdict want(enum thing base, enum thing place, enum thing host)
{
	if (equal(place, host))
		return MERGE_NOTHING;
	if (equal(base, host))
		return MERGE_TAKE;
	return place == NONE ? MERGE_KEEP_HOST : MERGE_KEEP_BOTH;
}

static void every_case_of_base_place_and_host_has_its_verdict(void **state)
{
	(void)state;
	for (int b = 0; b < THINGS; b++) {
		for (int p = 0; p < THINGS; p++) {
			for (int h = 0; h < THINGS; h++) {
				struct tree_entry base = entry_of((enum thing)b);
				struct tree_entry place = entry_of((enum thing)p);
				struct tree_entry host = entry_of((enum thing)h);
				enum merge_verdict is = merge_decide(&base, &place, &host);

				if (is != want((enum thing)b, (enum thing)p, (enum thing)h))
					fail_msg("base %d place %d host %d: %d", b, p, h, is);
			}
		}
	}
}

static void a_file_without_a_hash_is_unchanged_only_in_the_same_state(void **state)
{
	struct tree_entry base = entry_of(FILE_A), place = entry_of(FILE_B), host;

	(void)state;
	base.flags = 0;
	base.dev = 1;
	base.ino = 2;
	base.mtime_ns = base.ctime_ns = 1000;
	host = base;
	assert_int_equal(merge_decide(&base, &place, &host), MERGE_TAKE);
	host.ctime_ns++;
	assert_int_equal(merge_decide(&base, &place, &host), MERGE_KEEP_BOTH);
	host = base;
	base.flags = TREE_RACY;
	assert_int_equal(merge_decide(&base, &place, &host), MERGE_KEEP_BOTH);
}

static void the_hash_is_asked_for_only_where_it_decides(void **state)
{
	struct tree_entry base = entry_of(FILE_A), place = entry_of(FILE_B);
	struct tree_entry host = entry_of(FILE_A), none = entry_of(NONE);

	(void)state;
	host.flags = 0;
	host.ino = 7;
	assert_true(merge_wants_hash(&base, &place, &host));
	assert_true(merge_wants_hash(&none, &place, &host));
	host.size = 4;
	assert_false(merge_wants_hash(&base, &place, &host));
	host = base;
	host.flags = 0;
	assert_false(merge_wants_hash(&base, &place, &host));
	assert_false(merge_wants_hash(&base, &place, &none));
}

static void setuid_bits_of_the_host_do_not_make_a_file_differ_from_the_places(void **state)
{
	struct tree_entry base = entry_of(FILE_A), place = entry_of(FILE_AX);
	struct tree_entry host = entry_of(FILE_AX);

	(void)state;
	host.mode = 04755;
	assert_int_equal(merge_decide(&base, &place, &host), MERGE_NOTHING);
	base.mode = 04755;
	host.mode = 0755;
	place = entry_of(FILE_B);
	assert_int_equal(merge_decide(&base, &place, &host), MERGE_KEEP_BOTH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_case_of_base_place_and_host_has_its_verdict),
		cmocka_unit_test(a_file_without_a_hash_is_unchanged_only_in_the_same_state),
		cmocka_unit_test(the_hash_is_asked_for_only_where_it_decides),
		cmocka_unit_test(setuid_bits_of_the_host_do_not_make_a_file_differ_from_the_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
