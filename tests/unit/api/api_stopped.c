/*
 * Relays that stand still: after a lease was granted nobody answers in its place. What is asked of
 * it waits, and goes on when the relay does; who has enough gives the place back without it.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include "base/fault.h"
#include "base/spawn.h"
#include "fixture.h"

/* A native place, and the relay in it. */
struct still {
	char lease[ID_SIZE], place[ID_SIZE];
	pid_t relay;
	unsigned long long start_time;
};

static void make_native(struct api_test *t, const char *pool)
{
	PATH("/api/companies/%s/environments", t->company);
	_cleanup_free_ char *body =
		xasprintf("{\"name\": \"walls\", \"driver\": \"sandbox\", \"config\": "
			  "{\"provider\": \"native\", \"warmPool\": {\"size\": %s}}}",
			  pool);

	take_id(post(t, 201, path, body), t->box);
}

static int up(void **state)
{
	struct api_test *t;
	int r = api_up(state);
	char trace[96];

	t = *state;
	snprintf(trace, sizeof(trace), "%s/trace", t->dir);
	assert_int_equal(fault_trace(trace, NULL), 0);
	return r;
}

static int down(void **state)
{
	assert_int_equal(fault_trace(NULL, NULL), 0);
	return api_down(state);
}

/* Whether the server has come by this point, which tests learn of in no other way. */
static bool has_passed(const struct api_test *t, const char *point)
{
	_cleanup_free_ char *path = xasprintf("%s/trace", t->dir);
	_cleanup_buf_ struct buf text = { 0 };

	return file_read(AT_FDCWD, path, &text, 1 << 20, NULL) == 0 &&
	       strstr(buf_str(&text), point);
}

/* What the keeper wrote down of the relay of a place. True: its walls stand. */
static bool read_relay(const struct api_test *t, const char *place, struct still *s)
{
	PATH("%s/keeper/places/%s/relay", t->data, place);
	_cleanup_buf_ struct buf text = { 0 };
	unsigned long long walls = 0;
	int pid = 0;

	if (file_read(AT_FDCWD, path, &text, 200, NULL) < 0 ||
	    sscanf(buf_str(&text), "%d %llu %llx", &pid, &s->start_time, &walls) != 3)
		return false;
	s->relay = pid;
	return pid > 1 && walls != 0;
}

static void hold(struct api_test *t, struct still *s)
{
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");

	id_copy(s->lease, json_str(lease, "id"));
	id_copy(s->place, json_str(lease, "placeId"));
	assert_true(read_relay(t, s->place, s));
}

/* A relay that is kept ready for whoever comes. */
static bool find_prepared(const struct api_test *t, const struct still *other, struct still *s)
{
	PATH("%s/keeper/places", t->data);
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.' && strcmp(entry->d_name, other->place) != 0 &&
			read_relay(t, entry->d_name, s);
	if (dir)
		closedir(dir);
	return found;
}

static void stop(const struct still *s)
{
	assert_true(process_is(s->relay, s->start_time));
	assert_int_equal(kill(s->relay, SIGSTOP), 0);
}

static void let_go_on(const struct still *s)
{
	assert_int_equal(kill(s->relay, SIGCONT), 0);
}

static void release(const struct api_test *t, const struct still *s)
{
	PATH("/api/environment-leases/%s/release", s->lease);
	_cleanup_json_ json_t *lease = post(t, 200, path, "{}");

	assert_string_equal(json_str(lease, "status"), "released");
}

static bool is_explained(const struct api_test *t)
{
	_cleanup_json_ json_t *unexplained = get(t, "/api/audit");

	return json_array_size(unexplained) == 0;
}

/* No process, no directory, nothing that audit finds. */
static void nothing_is_left(const struct api_test *t, const struct still *s)
{
	PATH("%s/keeper/places/%s", t->data, s->place);

	WAIT_FOR(access(path, F_OK) < 0);
	WAIT_FOR(!process_is(s->relay, s->start_time));
	WAIT_FOR(is_explained(t));
}

/* A command that is asked for by a thread of its own. */
struct asked {
	const struct api_test *t;
	char *path;
	struct buf answer;
	int status;
	atomic_bool answered;
	pthread_t thread;
};

static void *ask(void *arg)
{
	struct asked *a = arg;

	a->status = call_raw(a->t, CALL("POST", a->path, "{\"command\": [\"echo\", \"at last\"]}"),
			     &a->answer);
	atomic_store(&a->answered, true);
	return NULL;
}

static void ask_for_command(const struct api_test *t, const struct still *s, struct asked *a)
{
	*a = (struct asked){ .t = t };
	a->path = xasprintf("/api/environment-leases/%s/exec?stream=0", s->lease);
	assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

/* The server has heard of it, and nobody else can. */
static void it_waits(struct asked *a)
{
	WAIT_FOR(has_passed(a->t, "driver.start.before"));
	assert_false(atomic_load(&a->answered));
}

static json_t *await_answer(struct asked *a, int status)
{
	json_t *answer;

	pthread_join(a->thread, NULL);
	if (a->status != status)
		fail_msg("wanted %d, got %d %s", status, a->status, buf_str(&a->answer));
	answer = json_parse(buf_str(&a->answer), a->answer.len, NULL);
	assert_non_null(answer);
	buf_free(&a->answer);
	free(a->path);
	return answer;
}

static void ran(struct asked *a)
{
	_cleanup_json_ json_t *answer = await_answer(a, 200);

	assert_int_equal(json_int(answer, "exitCode", -1), 0);
	assert_string_equal(json_str(answer, "stdout"), "at last\n");
}

static void a_command_waits_until_its_relay_goes_on(void **state)
{
	struct api_test *t = *state;
	struct asked asked;
	struct still s;

	make_native(t, "0");
	hold(t, &s);
	stop(&s);
	ask_for_command(t, &s, &asked);
	it_waits(&asked);
	let_go_on(&s);
	ran(&asked);
	release(t, &s);
	nothing_is_left(t, &s);
}

/* It was granted because its walls stand; it has not even read whose it is. */
static void a_command_waits_for_a_relay_that_never_spoke(void **state)
{
	struct api_test *t = *state;
	struct still first, ready, s;
	struct asked asked;

	make_native(t, "1");
	hold(t, &first);
	WAIT_FOR(find_prepared(t, &first, &ready));
	stop(&ready);
	hold(t, &s);
	assert_int_equal(s.relay, ready.relay);
	ask_for_command(t, &s, &asked);
	it_waits(&asked);
	let_go_on(&s);
	ran(&asked);
	release(t, &s);
	nothing_is_left(t, &s);
	release(t, &first);
	nothing_is_left(t, &first);
}

static void a_place_whose_relay_stands_still_is_given_back(void **state)
{
	struct api_test *t = *state;
	struct asked asked;
	struct still s;

	make_native(t, "0");
	hold(t, &s);
	stop(&s);
	release(t, &s);
	nothing_is_left(t, &s);
	/* The next one is none the worse for it. */
	hold(t, &s);
	ask_for_command(t, &s, &asked);
	ran(&asked);
	release(t, &s);
	nothing_is_left(t, &s);
}

static void who_waits_for_a_place_that_is_given_back_is_told_so(void **state)
{
	struct api_test *t = *state;
	struct asked asked;
	struct still s;

	make_native(t, "0");
	hold(t, &s);
	stop(&s);
	ask_for_command(t, &s, &asked);
	it_waits(&asked);
	release(t, &s);
	nothing_is_left(t, &s);

	_cleanup_json_ json_t *answer = await_answer(&asked, 409);

	assert_string_equal(json_str(answer, "code"), "lease_lost");
	assert_non_null(strstr(json_str(answer, "error"), "the place was stopped"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_command_waits_until_its_relay_goes_on),
		TEST(a_command_waits_for_a_relay_that_never_spoke),
		TEST(a_place_whose_relay_stands_still_is_given_back),
		TEST(who_waits_for_a_place_that_is_given_back_is_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
