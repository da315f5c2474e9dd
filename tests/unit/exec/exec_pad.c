#include "exec/exec_pad.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/text.h"

struct desk {
	char dir[64];
	int dirfd;
	struct pad pad;
};

static int up(void **state)
{
	struct desk *desk = xcalloc(1, sizeof(*desk));

	snprintf(desk->dir, sizeof(desk->dir), "/tmp/berth-pad-XXXXXX");
	assert_non_null(mkdtemp(desk->dir));
	assert_int_equal(dir_open(AT_FDCWD, desk->dir, &desk->dirfd, NULL), 0);
	assert_int_equal(pad_open(&desk->pad, desk->dirfd, "pad", NULL), 0);
	*state = desk;
	return 0;
}

static int down(void **state)
{
	struct desk *desk = *state;

	pad_close(&desk->pad);
	close(desk->dirfd);
	assert_int_equal(dir_remove_tree(AT_FDCWD, desk->dir, NULL), 0);
	free(desk);
	return 0;
}

/* As the next server finds it. */
static void open_again(struct desk *desk)
{
	pad_close(&desk->pad);
	assert_int_equal(pad_open(&desk->pad, desk->dirfd, "pad", NULL), 0);
}

static int put(struct desk *desk, int64_t number)
{
	_cleanup_json_ json_t *record = json_object();

	json_put_int(record, "number", number);
	return pad_put(&desk->pad, record);
}

struct seen {
	int64_t numbers[PAD_SLOTS];
	size_t count, stop_at;
};

static int see(void *arg, json_t *record, struct error *err)
{
	struct seen *seen = arg;

	if (seen->count == seen->stop_at)
		return error_set(err, ERR_CANCELLED, "enough");
	seen->numbers[seen->count++] = json_int(record, "number", -1);
	return 0;
}

static size_t taken(struct desk *desk, struct seen *seen)
{
	*seen = (struct seen){ .stop_at = PAD_SLOTS };
	open_again(desk);
	assert_int_equal(pad_take(&desk->pad, see, seen, NULL), 0);
	return seen->count;
}

static void the_next_server_takes_what_was_not_cleared(void **state)
{
	struct desk *desk = *state;
	int first = put(desk, 1), second = put(desk, 2), third = put(desk, 3);
	struct seen seen;

	assert_true(first >= 0 && second >= 0 && third >= 0);
	pad_clear(&desk->pad, second);
	assert_int_equal(taken(desk, &seen), 2);
	assert_int_equal(seen.numbers[0], 1);
	assert_int_equal(seen.numbers[1], 3);
	/* Once. */
	assert_int_equal(taken(desk, &seen), 0);
}

static void what_could_not_be_taken_stays(void **state)
{
	struct desk *desk = *state;
	struct seen seen = { .stop_at = 1 };
	_cleanup_error_ struct error err = { 0 };

	put(desk, 1);
	put(desk, 2);
	open_again(desk);
	assert_int_equal(pad_take(&desk->pad, see, &seen, &err), -1);
	assert_int_equal(err.code, ERR_CANCELLED);
	assert_int_equal(taken(desk, &seen), 1);
	assert_int_equal(seen.numbers[0], 2);
}

static void a_full_pad_takes_no_more_until_one_is_cleared(void **state)
{
	struct desk *desk = *state;
	struct seen seen;
	int slot = -1;

	for (int i = 0; i < PAD_SLOTS; i++) {
		slot = put(desk, i);
		assert_true(slot >= 0);
	}
	assert_int_equal(put(desk, 100), -1);
	pad_clear(&desk->pad, slot);
	assert_int_equal(put(desk, 101), slot);
	assert_int_equal(taken(desk, &seen), PAD_SLOTS);
}

static void a_record_that_is_too_long_is_not_taken(void **state)
{
	struct desk *desk = *state;
	_cleanup_json_ json_t *record = json_object();
	char text[4097];
	struct seen seen;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	json_put_str(record, "text", text);
	assert_int_equal(pad_put(&desk->pad, record), -1);
	assert_int_equal(taken(desk, &seen), 0);
}

static void what_was_not_written_whole_is_no_record(void **state)
{
	struct desk *desk = *state;
	static const char *const BROKEN[] = { "{\"number\": 1", "[1]", "\1\2\3" };
	struct seen seen;

	for (size_t i = 0; i < ARRAY_SIZE(BROKEN); i++) {
		int slot = put(desk, (int64_t)i);

		assert_int_equal(fd_pwrite_all(desk->pad.fd, BROKEN[i], strlen(BROKEN[i]) + 1,
					       (off_t)slot * 4096, NULL),
				 0);
	}
	assert_int_equal(taken(desk, &seen), 0);
}

static void nothing_is_left_of_what_was_cleared(void **state)
{
	struct desk *desk = *state;
	_cleanup_json_ json_t *record = json_object();
	_cleanup_buf_ struct buf text = { 0 };

	json_put_str(record, "command", "whispered");
	pad_clear(&desk->pad, pad_put(&desk->pad, record));
	assert_int_equal(file_read(desk->dirfd, "pad", &text, 1 << 20, NULL), 0);
	assert_null(memmem(text.data, text.len, "whispered", 9));
}

#define pad_test(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		pad_test(the_next_server_takes_what_was_not_cleared),
		pad_test(what_could_not_be_taken_stays),
		pad_test(a_full_pad_takes_no_more_until_one_is_cleared),
		pad_test(a_record_that_is_too_long_is_not_taken),
		pad_test(what_was_not_written_whole_is_no_record),
		pad_test(nothing_is_left_of_what_was_cleared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
