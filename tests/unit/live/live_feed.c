/* The feed by itself: a database, sockets without HTTP, and readers of every temper. */
#include "../api/fixture.h"
#include <poll.h>
#include <sys/socket.h>
#include "live/feed.h"
#include "record/activity.h"

struct feeding {
	char dir[64];
	struct db *db;
	struct clock clock;
	struct runlog_store *logs;
	struct company acme, other;
	struct feed *feed;
};

static const struct actor NOBODY = { .type = "user", .id = "local" };

static void start_feed(struct feeding *t, const struct feed_options *given)
{
	struct feed_options options = *given;

	options.db = t->db;
	options.clock = &t->clock;
	options.logs = t->logs;
	assert_int_equal(feed_new(&options, &t->feed, NULL), 0);
}

static int set_up(void **state)
{
	struct feeding *t = xcalloc(1, sizeof(*t));
	_cleanup_close_ int dirfd = -1;

	log_set_level(LOG_ERROR_);
	snprintf(t->dir, sizeof(t->dir), "/tmp/berth-feed-XXXXXX");
	assert_non_null(mkdtemp(t->dir));

	_cleanup_free_ char *path = xasprintf("%s/berth.db", t->dir);

	clock_init_system(&t->clock);
	assert_int_equal(db_open(&t->db, &(struct db_options){ .path = path }, NULL), 0);
	assert_int_equal(dir_open(AT_FDCWD, t->dir, &dirfd, NULL), 0);
	assert_int_equal(runlog_store_open(dirfd, 0, &t->logs, NULL), 0);
	assert_int_equal(
		company_create(WRITER(t->db, &t->clock, &NOBODY), "acme", NULL, &t->acme, NULL), 0);
	assert_int_equal(
		company_create(WRITER(t->db, &t->clock, &NOBODY), "other", NULL, &t->other, NULL),
		0);
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	struct feeding *t = *state;

	feed_stop(t->feed);
	db_close(t->db);
	feed_free(t->feed);
	runlog_store_close(t->logs);
	company_clear(&t->acme);
	company_clear(&t->other);
	dir_remove_tree(AT_FDCWD, t->dir, NULL);
	free(t);
	return 0;
}

static void happen(struct feeding *t, const struct company *company, const char *what)
{
	const struct activity activity = { .company_id = company->id,
					   .actor = &NOBODY,
					   .action = "thing.done",
					   .entity_type = "thing",
					   .entity_id = what };

	assert_int_equal(activity_write(t->db, &t->clock, &activity, NULL), 0);
}

static int64_t newest(struct feeding *t)
{
	_cleanup_event_page_ struct event_page page = { 0 };

	assert_int_equal(events_after(t->db, t->acme.id, 0, 0, &page, NULL), 0);
	return page.now;
}

struct ear {
	int fd, far; /* ours, the feed's */
	struct feed_reader *reader;
	struct buf heard;
};

static void join(struct feeding *t, const struct company *company, unsigned types, struct ear *ear)
{
	int pair[2];

	*ear = (struct ear){ 0 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	ear->fd = pair[0];
	ear->far = pair[1];
	assert_int_equal(feed_join(t->feed, company->id, types, newest(t), &ear->reader, NULL), 0);
}

static void listen_now(struct feeding *t, const struct company *company, unsigned types,
		       struct ear *ear)
{
	join(t, company, types, ear);
	assert_true(feed_attach(ear->reader, newest(t), ear->far));
}

static void leave(struct ear *ear)
{
	feed_leave(ear->reader);
	close(ear->fd);
	close(ear->far);
	buf_free(&ear->heard);
}

/* 1 something came, 0 the end, -1 nothing for a while. */
static int hear(struct ear *ear, int timeout_ms)
{
	struct pollfd p = { .fd = ear->fd, .events = POLLIN };
	char part[4096];

	if (poll(&p, 1, timeout_ms) <= 0)
		return -1;

	ssize_t n = recv(ear->fd, part, sizeof(part), 0);

	if (n <= 0)
		return 0;
	buf_append(&ear->heard, part, (size_t)n);
	return 1;
}

static void expect(struct ear *ear, const char *text)
{
	while (!strstr(buf_str(&ear->heard), text)) {
		if (hear(ear, PATIENCE_MS) <= 0)
			fail_msg("\"%s\" never came, only \"%s\"", text, buf_str(&ear->heard));
	}
}

static size_t count(const char *text, const char *word)
{
	size_t n = 0;

	for (const char *at = text; (at = strstr(at, word)); at++)
		n++;
	return n;
}

static void everybody_hears_everything_in_order(void **state)
{
	struct feeding *t = *state;
	struct ear ears[5];

	start_feed(t, &(struct feed_options){ 0 });
	for (size_t i = 0; i < ARRAY_SIZE(ears); i++)
		listen_now(t, &t->acme, FEED_ALL_TYPES, &ears[i]);
	assert_int_equal(feed_readers(t->feed), ARRAY_SIZE(ears));
	for (int i = 0; i < 20; i++) {
		_cleanup_free_ char *what = xasprintf("thing-%02d", i);

		happen(t, &t->acme, what);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ears); i++) {
		const char *at;

		expect(&ears[i], "thing-19");
		at = buf_str(&ears[i].heard);
		for (int k = 0; k < 20; k++) {
			_cleanup_free_ char *what = xasprintf("\"thing-%02d\"", k);

			at = strstr(at, what);
			if (!at)
				fail_msg("%s is missing or late", what);
		}
		assert_int_equal(count(buf_str(&ears[i].heard), "\nevent: activity.logged\n"), 20);
		leave(&ears[i]);
	}
	assert_int_equal(feed_readers(t->feed), 0);
}

static void a_reader_hears_only_its_company_and_its_types(void **state)
{
	struct feeding *t = *state;
	struct ear acme, other, deaf;

	start_feed(t, &(struct feed_options){ 0 });
	listen_now(t, &t->acme, FEED_ALL_TYPES, &acme);
	listen_now(t, &t->other, FEED_ALL_TYPES, &other);
	listen_now(t, &t->acme, 1u << EVENT_AGENT_STATUS, &deaf);
	happen(t, &t->acme, "mine");
	happen(t, &t->other, "theirs");
	expect(&acme, "mine");
	expect(&other, "theirs");
	assert_null(strstr(buf_str(&other.heard), "mine"));
	assert_null(strstr(buf_str(&other.heard), t->acme.id));
	assert_int_equal(hear(&acme, 50), -1);
	assert_int_equal(hear(&deaf, 0), -1);
	leave(&acme);
	leave(&other);
	leave(&deaf);
}

static void the_ring_gives_what_came_meanwhile_once(void **state)
{
	struct feeding *t = *state;
	struct ear first, late;

	start_feed(t, &(struct feed_options){ 0 });
	listen_now(t, &t->acme, FEED_ALL_TYPES, &first);

	int64_t before = newest(t);

	happen(t, &t->acme, "one");
	happen(t, &t->acme, "two");
	expect(&first, "two");
	join(t, &t->acme, FEED_ALL_TYPES, &late);
	assert_true(feed_attach(late.reader, before + 1, late.far));
	expect(&late, "two");
	assert_null(strstr(buf_str(&late.heard), "\"one\""));
	leave(&late);
	/* From before the ring was made only the database knows. */
	join(t, &t->acme, FEED_ALL_TYPES, &late);
	assert_false(feed_attach(late.reader, before - 1, late.far));
	leave(&late);
	leave(&first);
}

static void a_slow_reader_is_dropped_and_told_where_to_go_on(void **state)
{
	struct feeding *t = *state;
	struct ear slow, quick;
	_cleanup_free_ char *what = xcalloc(1, 2001);
	int small = 4096;
	long long id = 0, last = 0;

	memset(what, 'x', 2000);
	start_feed(t, &(struct feed_options){ .ring_frames = 8 });
	join(t, &t->acme, FEED_ALL_TYPES, &slow);
	setsockopt(slow.far, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	assert_true(feed_attach(slow.reader, newest(t), slow.far));
	listen_now(t, &t->acme, FEED_ALL_TYPES, &quick);
	for (int i = 0; i < 40; i++) {
		_cleanup_free_ char *mark = xasprintf("%s-%02d", what, i);

		happen(t, &t->acme, mark);
		expect(&quick, mark);
	}
	while (hear(&slow, PATIENCE_MS) == 1)
		continue;

	const char *end = strstr(buf_str(&slow.heard), "event: dropped\n");

	assert_non_null(end);
	assert_int_equal(
		sscanf(end, "event: dropped\ndata: {\"companyId\":\"%*36s\",\"lastEventId\":%lld",
		       &id),
		1);
	/* Whole frames up to exactly that one. */
	for (const char *at = buf_str(&slow.heard); at < end; at = strstr(at, "\n\n") + 2) {
		if (str_starts(at, "id: ") && sscanf(at, "id: %lld\nevent: activity", &last) != 1)
			fail_msg("no whole frame: %.40s", at);
		if (strstr(at, "\n\n") + 2 >= end - 20)
			break;
	}
	assert_int_equal(last, id);
	assert_int_equal(count(buf_str(&quick.heard), "event: dropped"), 0);
	leave(&slow);
	leave(&quick);
}

static void one_that_never_reads_is_ended(void **state)
{
	struct feeding *t = *state;
	struct ear slow;
	int small = 4096;
	_cleanup_free_ char *what = xcalloc(1, 2001);

	memset(what, 'x', 2000);
	start_feed(t, &(struct feed_options){ .ring_frames = 4, .drop_ms = 50 });
	join(t, &t->acme, FEED_ALL_TYPES, &slow);
	setsockopt(slow.far, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	assert_true(feed_attach(slow.reader, newest(t), slow.far));

	struct pollfd far = { .fd = slow.far, .events = POLLRDHUP };

	for (int i = 0; i < 400 && poll(&far, 1, 10) == 0; i++)
		happen(t, &t->acme, what);
	assert_int_equal(poll(&far, 1, PATIENCE_MS), 1);
	leave(&slow);
}

static void silence_is_broken_by_a_comment_with_the_number_reached(void **state)
{
	struct feeding *t = *state;
	struct ear ear;

	start_feed(t, &(struct feed_options){ .beat_ms = 30 });
	listen_now(t, &t->acme, 1u << EVENT_AGENT_STATUS, &ear);
	happen(t, &t->acme, "unheard");

	_cleanup_free_ char *text = xasprintf(": heartbeat\nid: %lld\n\n", (long long)newest(t));

	expect(&ear, text);
	assert_null(strstr(buf_str(&ear.heard), "unheard"));
	leave(&ear);
}

static void there_is_room_for_so_many(void **state)
{
	struct feeding *t = *state;
	struct ear one, two;
	struct feed_reader *third;
	_cleanup_error_ struct error err = { 0 };

	start_feed(t, &(struct feed_options){ .max_readers = 2, .max_per_company = 1 });
	listen_now(t, &t->acme, FEED_ALL_TYPES, &one);
	assert_int_equal(feed_join(t->feed, t->acme.id, FEED_ALL_TYPES, 1, &third, &err), -1);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	listen_now(t, &t->other, FEED_ALL_TYPES, &two);
	leave(&one);
	listen_now(t, &t->acme, FEED_ALL_TYPES, &one);
	assert_int_equal(feed_join(t->feed, t->other.id, FEED_ALL_TYPES, 1, &third, &err), -1);
	leave(&one);
	leave(&two);
}

/* Where the socket belongs to somebody else (TLS), frames are taken instead of sent. */
static void frames_can_be_taken(void **state)
{
	struct feeding *t = *state;
	struct feed_reader *reader;
	char part[100];
	_cleanup_buf_ struct buf heard = { 0 };

	start_feed(t, &(struct feed_options){ .ring_frames = 4 });
	assert_int_equal(feed_join(t->feed, t->acme.id, FEED_ALL_TYPES, newest(t), &reader, NULL),
			 0);

	int latch = feed_event(reader, NULL);
	struct pollfd p = { .fd = latch, .events = POLLIN };

	assert_true(feed_attach(reader, newest(t), -1));
	happen(t, &t->acme, "taken");
	while (!strstr(buf_str(&heard), "taken")) {
		ssize_t n = feed_take(reader, part, sizeof(part));

		assert_true(n >= 0);
		if (n == 0)
			assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		buf_append(&heard, part, (size_t)n);
	}
	/* Overrun: the last thing it takes says where to go on. */
	struct ear quick;

	listen_now(t, &t->acme, FEED_ALL_TYPES, &quick);
	for (int i = 0; i < 12; i++) {
		_cleanup_free_ char *mark = xasprintf("more-%02d", i);

		happen(t, &t->acme, mark);
		expect(&quick, mark);
	}

	ssize_t n;

	while ((n = feed_take(reader, part, sizeof(part))) > 0)
		buf_append(&heard, part, (size_t)n);
	assert_int_equal(n, -1);
	assert_non_null(strstr(buf_str(&heard), "event: dropped"));
	leave(&quick);
	feed_leave(reader);
}

/* Readers come and go while events flow: nobody misses one between joining and leaving. */
struct crowd {
	struct feeding *t;
	atomic_bool over;
};

static void *come_and_go(void *arg)
{
	struct crowd *crowd = arg;

	while (!atomic_load(&crowd->over)) {
		struct ear ear;

		listen_now(crowd->t, &crowd->t->acme, FEED_ALL_TYPES, &ear);
		hear(&ear, 5);
		leave(&ear);
	}
	return NULL;
}

static void readers_come_and_go(void **state)
{
	struct feeding *t = *state;
	struct crowd crowd = { .t = t };
	pthread_t threads[4];
	struct ear ear;

	start_feed(t, &(struct feed_options){ .ring_frames = 16 });
	listen_now(t, &t->acme, FEED_ALL_TYPES, &ear);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &crowd), 0);
	for (int i = 0; i < 60; i++) {
		_cleanup_free_ char *mark = xasprintf("event-%02d", i);

		happen(t, &t->acme, mark);
		expect(&ear, mark);
	}
	atomic_store(&crowd.over, true);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(count(buf_str(&ear.heard), "\nevent: activity.logged\n"), 60);
	leave(&ear);
}

#define feed_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		feed_test(everybody_hears_everything_in_order),
		feed_test(a_reader_hears_only_its_company_and_its_types),
		feed_test(the_ring_gives_what_came_meanwhile_once),
		feed_test(a_slow_reader_is_dropped_and_told_where_to_go_on),
		feed_test(one_that_never_reads_is_ended),
		feed_test(silence_is_broken_by_a_comment_with_the_number_reached),
		feed_test(there_is_room_for_so_many),
		feed_test(frames_can_be_taken),
		feed_test(readers_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
