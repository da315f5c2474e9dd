/* What a relay that is not one says about commands is refused, told in the log, and bounded. */
#include "impostor.h"

#define MISTAKE(name) static void name(struct liar *im)

struct liar {
	struct impostor as;
	bool silent;
	uint32_t stream; /* of the attachment */
	void (*mistake)(struct liar *);
};

/* Serves an attachment, then makes its mistake and looks on. */
static void serve(struct impostor *as)
{
	struct liar *im = container_of(as, struct liar, as);
	struct frame frame;

	if (im->silent) {
		while (impostor_next(as, &frame))
			;
		return;
	}
	if (!impostor_greet(as))
		return;
	while (impostor_next(as, &frame)) {
		if (frame.type != WIRE_EXEC_ATTACH)
			continue;
		im->stream = frame.stream;
		wire_encode(&as->conn.out, frame.stream, WIRE_EXEC_STARTED,
			    &(struct wire_exec_started){ .pid = 7, .existing = 1 }, NULL);
		if (im->mistake)
			im->mistake(im);
		impostor_flush(as);
	}
}

static int hostile_setup(void **state)
{
	struct liar *im = xcalloc(1, sizeof(*im));

	impostor_prepare(&im->as, serve);
	*state = im;
	return 0;
}

static int hostile_teardown(void **state)
{
	struct liar *im = *state;
	int rc = impostor_end(&im->as);

	free(im);
	return rc;
}

#define with_hostile(test) cmocka_unit_test_setup_teardown(test, hostile_setup, hostile_teardown)

static void prepare_hostile(struct liar *im, struct going *g)
{
	prepare(im->as.t, g, NULL);
	g->spec.place_id = HOSTILE;
	g->spec.generation = 1;
}

/* How often the log has the text. */
static int logged(struct liar *im, const char *text)
{
	_cleanup_buf_ struct buf log = { 0 };
	int count = 0;

	assert_int_equal(file_read(im->as.t->dir->fd, "stderr", &log, 1 << 20, NULL), 0);
	for (const char *p = buf_str(&log); (p = strstr(p, text)); p++)
		count++;
	return count;
}

/* A relay that does this is heard a few times, told about each time, and then never again. */
static void expect_given_up(struct liar *im, void (*mistake)(struct liar *), const char *text)
{
	struct going g;

	im->mistake = mistake;
	impostor_start(&im->as);
	prepare_hostile(im, &g);
	if (exec_adopt(im->as.t->places, &g.spec, &g.exec, &g.err) < 0) {
		assert_int_equal(g.err.code, ERR_LEASE_LOST);
		runlog_close(g.log);
	} else {
		wait_in_thread(&g);
		assert_int_equal(g.rc, 0);
		assert_int_equal(g.result.reason, EXEC_LEASE_LOST);
	}
	error_clear(&g.err);
	assert_in_range(logged(im, text), 1, 4);
	assert_in_range(atomic_load(&im->as.connections), 1, 8);
}

MISTAKE(says_garbage)
{
	buf_append(&im->as.conn.out, "\x05\x00\x00\x00\xee\x00\x01\x00\x00\x00hello", 15);
}

static void garbage_is_refused(void **state)
{
	expect_given_up(*state, says_garbage, "a message of type 0xee");
}

MISTAKE(says_too_much)
{
	frame_begin(&im->as.conn.out, WIRE_OUTPUT, 0, im->stream, 0x7fffffff);
}

static void a_huge_frame_is_refused_before_it_costs_memory(void **state)
{
	expect_given_up(*state, says_too_much, "closed:");
}

MISTAKE(ignores_credit)
{
	_cleanup_free_ char *data = xcalloc(1, 65536 + WIRE_OUTPUT_OVERHEAD);

	for (uint64_t offset = 0; offset < 2 << 20; offset += 65536) {
		put_le64((uint8_t *)data, offset);
		put_le64((uint8_t *)data + 8, offset);
		frame_append(&im->as.conn.out, WIRE_OUTPUT, WIRE_STDOUT, im->stream, data,
			     65536 + WIRE_OUTPUT_OVERHEAD);
	}
}

/* Nobody takes anything while it comes, so no credit can be given back. */
static void more_than_the_credit_is_refused(void **state)
{
	struct liar *im = *state;
	struct going g;

	im->mistake = ignores_credit;
	impostor_start(&im->as);
	prepare_hostile(im, &g);
	assert_int_equal(exec_adopt(im->as.t->places, &g.spec, &g.exec, NULL), 0);
	wait_until(logged(im, "has credit for") > 0);
	places_detach(im->as.t->places);
	wait_in_thread(&g);
	assert_int_equal(g.err.code, ERR_UNAVAILABLE);
}

MISTAKE(uses_a_wrong_stream)
{
	frame_append(&im->as.conn.out, WIRE_DATA, 0, im->stream + 1000, "x", 1);
}

static void a_stream_that_was_never_opened_is_refused(void **state)
{
	expect_given_up(*state, uses_a_wrong_stream, "was never opened");
}

MISTAKE(lies_about_offsets)
{
	uint8_t data[WIRE_OUTPUT_OVERHEAD + 1] = { 9 };

	frame_append(&im->as.conn.out, WIRE_OUTPUT, WIRE_STDOUT, im->stream, data, sizeof(data));
}

static void output_at_a_wrong_offset_is_refused(void **state)
{
	expect_given_up(*state, lies_about_offsets, "output at offset 9");
}

MISTAKE(lies_about_the_end)
{
	wire_encode(&im->as.conn.out, im->stream, WIRE_EXEC_EXIT,
		    &(struct wire_exec_exit){ .reason = REASON_EXITED, .end_offset = 5 }, NULL);
}

static void an_exit_before_the_output_is_refused(void **state)
{
	expect_given_up(*state, lies_about_the_end, "an exit at offset 5");
}

MISTAKE(talks_out_of_turn)
{
	wire_encode(&im->as.conn.out, 0, WIRE_WELCOME,
		    &(struct wire_welcome){ .absence_ms = 1, .pid = 1 }, NULL);
}

static void a_message_of_the_wrong_stream_is_refused(void **state)
{
	expect_given_up(*state, talks_out_of_turn, "belongs to a stream");
}

MISTAKE(grants_without_end)
{
	for (int i = 0; i < 3; i++)
		wire_encode(&im->as.conn.out, im->stream, WIRE_CREDIT,
			    &(struct wire_credit){ .bytes = WIRE_CREDIT_MAX }, NULL);
}

static void too_much_credit_is_refused(void **state)
{
	expect_given_up(*state, grants_without_end, "more credit than");
}

MISTAKE(chatters)
{
	for (int i = 0; i < 20000; i++)
		wire_encode(&im->as.conn.out, im->stream, WIRE_EXEC_TRUNCATED,
			    &(struct wire_exec_truncated){ .from_offset = 0, .to_offset = 1 },
			    NULL);
}

static void endless_messages_are_refused(void **state)
{
	struct liar *im = *state;
	struct going g;

	im->mistake = chatters;
	impostor_start(&im->as);
	prepare_hostile(im, &g);
	assert_int_equal(exec_adopt(im->as.t->places, &g.spec, &g.exec, NULL), 0);
	wait_until(logged(im, "more messages than any answer has") > 0);
	places_detach(im->as.t->places);
	wait_in_thread(&g);
	assert_int_equal(g.err.code, ERR_UNAVAILABLE);
}

static void one_without_the_key_learns_and_gets_nothing(void **state)
{
	struct liar *im = *state;
	struct going g;

	im->as.key[5] ^= 1;
	impostor_start(&im->as);
	prepare_hostile(im, &g);
	assert_int_equal(exec_adopt(im->as.t->places, &g.spec, &g.exec, &g.err), -1);
	assert_int_equal(g.err.code, ERR_LEASE_LOST);
	assert_true(logged(im, "does not hold the place's key") > 0);
	runlog_close(g.log);
}

static void a_replayed_hello_is_refused(void **state)
{
	struct liar *im = *state;
	struct going g;

	im->as.replay = true;
	/* The first connection goes well and is broken off; the second one hears the first again.
	 */
	expect_given_up(im, says_garbage, "a message of type 0xee");
	prepare_hostile(im, &g);
	assert_int_equal(exec_adopt(im->as.t->places, &g.spec, &g.exec, &g.err), -1);
	assert_int_equal(g.err.code, ERR_LEASE_LOST);
	assert_true(logged(im, "does not hold the place's key") >= 1);
	runlog_close(g.log);
}

static void *detach_soon(void *arg)
{
	poll(NULL, 0, 100);
	places_detach(arg);
	return NULL;
}

static void silence_keeps_nobody_for_ever(void **state)
{
	struct liar *im = *state;
	struct timespec begin, end;
	pthread_t thread;
	struct going g;

	im->silent = true;
	impostor_start(&im->as);
	prepare_hostile(im, &g);
	pthread_create(&thread, NULL, detach_soon, im->as.t->places);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(exec_adopt(im->as.t->places, &g.spec, &g.exec, &g.err), -1);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_int_equal(g.err.code, ERR_UNAVAILABLE);
	assert_in_range(end.tv_sec - begin.tv_sec, 0, 12);
	pthread_join(thread, NULL);
	runlog_close(g.log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_hostile(garbage_is_refused),
		with_hostile(a_huge_frame_is_refused_before_it_costs_memory),
		with_hostile(more_than_the_credit_is_refused),
		with_hostile(a_stream_that_was_never_opened_is_refused),
		with_hostile(output_at_a_wrong_offset_is_refused),
		with_hostile(an_exit_before_the_output_is_refused),
		with_hostile(a_message_of_the_wrong_stream_is_refused),
		with_hostile(too_much_credit_is_refused),
		with_hostile(endless_messages_are_refused),
		with_hostile(one_without_the_key_learns_and_gets_nothing),
		with_hostile(a_replayed_hello_is_refused),
		with_hostile(silence_keeps_nobody_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
