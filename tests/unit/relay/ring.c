#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/id.h"
#include "relay/spool.h"

static char directory[] = "/tmp/berth-ring-XXXXXX";

static int set_up(void **state)
{
	static int fd;

	memcpy(strrchr(directory, 0x2d) + 1, "XXXXXX", 6);
	if (!mkdtemp(directory))
		return -1;
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = &fd;
	return 0;
}

static int tear_down(void **state)
{
	close(*(int *)*state);
	return dir_remove_tree(AT_FDCWD, directory, NULL);
}

static void append(struct ring *ring, enum wire_channel channel, const char *text)
{
	assert_int_equal(ring_append(ring, channel, text, strlen(text), NULL), 0);
}

static void offsets_count_in_total_and_per_channel(void **state)
{
	struct ring ring;
	char out[16] = { 0 };
	enum wire_channel channel;
	uint64_t channel_offset;

	ring_init(&ring, *(int *)*state, "of-this-test", 64 << 10);
	append(&ring, WIRE_STDOUT, "one");
	append(&ring, WIRE_STDERR, "two");
	append(&ring, WIRE_STDOUT, "three");
	assert_int_equal(ring.end, 11);
	assert_int_equal(ring_read(&ring, 0, out, 16, &channel, &channel_offset, NULL), 3);
	assert_int_equal(ring_read(&ring, 4, out, 16, &channel, &channel_offset, NULL), 2);
	assert_int_equal(channel, WIRE_STDERR);
	assert_int_equal(channel_offset, 1);
	assert_int_equal(ring_read(&ring, 7, out, 2, &channel, &channel_offset, NULL), 2);
	assert_memory_equal(out, "hr", 2);
	assert_int_equal(channel_offset, 4);
	assert_int_equal(ring_read(&ring, 11, out, 16, &channel, &channel_offset, NULL), -1);
	ring_release(&ring, 5);
	assert_int_equal(ring_read(&ring, 4, out, 16, &channel, &channel_offset, NULL), -1);
	assert_int_equal(ring_read(&ring, 5, out, 16, &channel, &channel_offset, NULL), 1);
	ring_free(&ring);
}

/* Random appends, reads and releases against a plain array that remembers everything. */
static void whatever_is_kept_reads_back_as_it_was_written(void **state)
{
	const size_t total = 2 << 20;
	uint8_t *all = xmalloc(total), *channels = xmalloc(total), out[40000];
	struct ring ring;

	srandom(7);
	random_bytes(all, total);
	ring_init(&ring, *(int *)*state, "of-this-test", 100000);
	while (ring.end < total) {
		size_t n = (size_t)random() % 30000 + 1;
		enum wire_channel channel = random() % 2 ? WIRE_STDOUT : WIRE_STDERR;
		uint64_t at;

		n = MIN_OF(MIN_OF(n, total - ring.end), ring_room(&ring));
		memset(channels + ring.end, (int)channel, n);
		assert_int_equal(ring_append(&ring, channel, all + ring.end, n, NULL), 0);
		at = ring.begin;
		while (at < ring.end) {
			uint64_t channel_offset, before = 0;
			ssize_t got = ring_read(&ring, at, out, sizeof(out), &channel,
						&channel_offset, NULL);

			assert_true(got > 0);
			assert_memory_equal(out, all + at, (size_t)got);
			assert_int_equal(channels[at], channel);
			for (uint64_t i = at > 1000 ? at - 1000 : 0; i < at; i++)
				before += channels[i] == channel;
			assert_true(channel_offset >= before);
			at += (uint64_t)got;
		}
		if (ring_room(&ring) == 0 || random() % 3 == 0)
			ring_release(&ring,
				     ring.begin + (uint64_t)random() % (ring.end - ring.begin + 1));
	}
	ring_free(&ring);
	free(all);
	free(channels);
}

static void a_full_ring_has_no_room(void **state)
{
	static char zeros[32 << 10];
	struct ring ring;

	ring_init(&ring, *(int *)*state, "of-this-test", 64 << 10);
	assert_int_equal(ring_append(&ring, WIRE_STDOUT, zeros, sizeof(zeros), NULL), 0);
	assert_int_equal(ring_append(&ring, WIRE_STDOUT, zeros, sizeof(zeros), NULL), 0);
	assert_int_equal(ring_room(&ring), 0);
	ring_release(&ring, 10);
	assert_int_equal(ring_room(&ring), 10);
	ring_free(&ring);
}

static void tiny_alternating_writes_are_bounded(void **state)
{
	struct ring ring;
	size_t count = 0;

	ring_init(&ring, *(int *)*state, "of-this-test", 1 << 20);
	while (ring_room(&ring) > 0 && count < 100000)
		append(&ring, count++ % 2 ? WIRE_STDOUT : WIRE_STDERR, "x");
	assert_true(count < 10000);
	ring_release(&ring, 100);
	assert_true(ring_room(&ring) > 0);
	ring_free(&ring);
}

/* A dead relay's ring must be findable; a living one's goes with its exec. */
static void a_rings_file_is_named_after_its_exec_and_goes_with_it(void **state)
{
	static char zeros[32 << 10];
	struct ring ring;

	ring_init(&ring, *(int *)*state, "of-this-test", 64 << 10);
	assert_int_equal(ring_append(&ring, WIRE_STDOUT, zeros, sizeof(zeros), NULL), 0);
	assert_true(ring.fd >= 0);
	assert_int_equal(faccessat(*(int *)*state, "ring-of-this-test", F_OK, 0), 0);
	ring_free(&ring);
	assert_int_equal(rmdir(directory), 0);
	assert_int_equal(mkdir(directory, 0700), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(offsets_count_in_total_and_per_channel),
		T(whatever_is_kept_reads_back_as_it_was_written),
		T(a_full_ring_has_no_room),
		T(tiny_alternating_writes_are_bounded),
		T(a_rings_file_is_named_after_its_exec_and_goes_with_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
