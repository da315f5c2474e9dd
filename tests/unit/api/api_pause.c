#include <poll.h>
#include "base/fault.h"
#include "fixture.h"

/* A lease with its paths, and a command in it that writes one byte after the other. */
struct memory_log {
	char id[ID_SIZE], place[ID_SIZE];
	char *exec, *pause, *resume, *release, *show, *count;
	pid_t pid;
};

static void held_clear(struct memory_log *h)
{
	free(h->exec);
	free(h->pause);
	free(h->resume);
	free(h->release);
	free(h->show);
	free(h->count);
}
#define _cleanup_held_ _cleanup_(held_clear)

static off_t counted(const struct memory_log *h)
{
	struct stat st;

	return stat(h->count, &st) < 0 ? 0 : st.st_size;
}

static void hold(struct api_test *t, struct memory_log *h)
{
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");

	id_copy(h->id, json_str(lease, "id"));
	id_copy(h->place, json_str(lease, "placeId"));
	h->show = xasprintf("/api/environment-leases/%s", h->id);
	h->exec = xasprintf("%s/exec?stream=0", h->show);
	h->pause = xasprintf("%s/pause", h->show);
	h->resume = xasprintf("%s/resume", h->show);
	h->release = xasprintf("%s/release", h->show);
	h->count = xasprintf("%s/count", t->dir);
	assert_false(json_bool(lease, "paused", true));
}

static void hold_counting(struct api_test *t, struct memory_log *h)
{
	hold(t, h);

	_cleanup_free_ char *detached = xasprintf("%s/exec?detach=1", h->show);
	_cleanup_free_ char *body = xasprintf("{\"command\": [\"sh\", \"-c\", \"echo $$ >%s.pid; "
					      "while :; do printf x >>%s; done\"]}",
					      h->count, h->count);
	_cleanup_free_ char *pid_path = xasprintf("%s.pid", h->count);
	_cleanup_buf_ struct buf pid = { 0 };

	json_decref(post(t, 201, detached, body));
	WAIT_FOR(counted(h) > 0);
	assert_int_equal(file_read(AT_FDCWD, pid_path, &pid, 64, NULL), 0);
	h->pid = atoi(buf_str(&pid));
	assert_true(h->pid > 1);
}

/* Only what cgroups hold can be frozen: an ordinary user is told so. */
static bool can_pause(struct api_test *t, struct memory_log *h)
{
	if (geteuid() == 0)
		return true;
	hold(t, h);
	refused(t, 422, "unsupported_environment", "cgroup", CALL("POST", h->pause, "{}"));
	return false;
}

static void put(const struct api_test *t, const char *path, bool paused)
{
	_cleanup_json_ json_t *lease = post(t, 200, path, "{\"generation\": 1}");

	assert_int_equal(json_bool(lease, "paused", !paused), paused);
}

static void stands_still(const struct memory_log *h)
{
	off_t at = counted(h);

	poll(NULL, 0, 60);
	assert_int_equal(counted(h), at);
}

static void goes_on(const struct memory_log *h)
{
	off_t at = counted(h);

	WAIT_FOR(counted(h) > at);
}

static bool shows_paused(const struct api_test *t, const struct memory_log *h)
{
	_cleanup_json_ json_t *lease = get(t, h->show);

	return json_bool(lease, "paused", false);
}

static void takes_no_command(const struct api_test *t, const struct memory_log *h)
{
	refused(t, 409, "lease_paused", "resume it first",
		CALL("POST", h->exec, "{\"command\": [\"true\"]}"));
}

static int told(const struct api_test *t, const char *action)
{
	PATH("/api/companies/%s/activity", t->company);
	_cleanup_json_ json_t *page = get(t, path);
	json_t *entry;
	int count = 0;
	size_t i;

	json_array_foreach (json_array_at(page, "items"), i, entry)
		count += str_equal(json_str(entry, "action"), action);
	return count;
}

static void a_paused_lease_stands_still_takes_no_command_and_goes_on(void **state)
{
	struct api_test *t = *state;
	_cleanup_held_ struct memory_log h = { 0 };

	if (!can_pause(t, &h))
		return;
	hold_counting(t, &h);
	put(t, h.pause, true);
	stands_still(&h);
	takes_no_command(t, &h);
	assert_true(shows_paused(t, &h));

	_cleanup_free_ char *files = xasprintf("%s/files/list?path=.", h.show);

	json_decref(get(t, files));
	put(t, h.pause, true);
	stands_still(&h);
	put(t, h.resume, false);
	goes_on(&h);
	put(t, h.resume, false);
	json_decref(post(t, 200, h.exec, "{\"command\": [\"true\"]}"));
	assert_int_equal(told(t, "environment.lease_paused"), 1);
	assert_int_equal(told(t, "environment.lease_resumed"), 1);
}

static void a_pause_outlives_the_server(void **state)
{
	struct api_test *t = *state;
	_cleanup_held_ struct memory_log h = { 0 };

	if (!can_pause(t, &h))
		return;
	hold_counting(t, &h);
	put(t, h.pause, true);
	server_end(t);
	stands_still(&h);
	server_begin(t, true);
	assert_true(shows_paused(t, &h));
	takes_no_command(t, &h);
	stands_still(&h);
	put(t, h.resume, false);
	goes_on(&h);
}

/* The row says it and the relay does not know: as a crash in between leaves it. */
static void a_pause_that_was_cut_short_is_finished_by_the_next_server(void **state)
{
	struct api_test *t = *state;
	_cleanup_held_ struct memory_log h = { 0 };

	if (!can_pause(t, &h))
		return;
	hold_counting(t, &h);
	assert_int_equal(fault_init("channel.pause.before:error", NULL), 0);
	refused(t, 500, "fault_injected", NULL, CALL("POST", h.pause, "{}"));
	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_true(shows_paused(t, &h));
	takes_no_command(t, &h);
	goes_on(&h);
	server_end(t);
	server_begin(t, true);
	WAIT_FOR(({
		off_t at = counted(&h);

		poll(NULL, 0, 60);
		counted(&h) == at;
	}));
	assert_int_equal(told(t, "environment.lease_paused"), 0);
	put(t, h.pause, true);
	assert_int_equal(told(t, "environment.lease_paused"), 1);
	put(t, h.resume, false);
	goes_on(&h);
}

static void a_paused_lease_is_released_and_the_next_holder_finds_nothing_of_it(void **state)
{
	struct api_test *t = *state;
	_cleanup_held_ struct memory_log h = { 0 }, next = { 0 };

	if (!can_pause(t, &h))
		return;
	hold_counting(t, &h);
	put(t, h.pause, true);
	json_decref(post(t, 200, h.release, "{\"generation\": 1}"));
	assert_false(shows_paused(t, &h));
	WAIT_FOR(kill(h.pid, 0) < 0); /* reaped, too */
	hold(t, &next);
	assert_string_equal(next.place, h.place);
	json_decref(post(t, 200, next.exec, "{\"command\": [\"true\"]}"));
	refused(t, 409, "lease_not_active", NULL, CALL("POST", h.pause, "{}"));
	refused(t, 409, "lease_not_active", NULL, CALL("POST", h.resume, "{}"));
	refused(t, 409, "lease_generation_stale", NULL,
		CALL("POST", next.pause, "{\"generation\": 1}"));
	refused(t, 409, "lease_generation_stale", NULL,
		CALL("POST", next.resume, "{\"generation\": 1}"));
	assert_false(shows_paused(t, &next));
}

static void a_place_without_a_relay_cannot_be_paused(void **state)
{
	struct api_test *t = *state;
	_cleanup_held_ struct memory_log h = { 0 };
	PATH("/api/companies/%s/environments", t->company);

	take_id(post(t, 201, path,
		     "{\"name\": \"bare\", \"driver\": \"sandbox\","
		     " \"config\": {\"provider\": \"fake\", \"relay\": false}}"),
		t->box);
	hold(t, &h);
	refused(t, 422, "unsupported_environment", "no relay", CALL("POST", h.pause, "{}"));
	json_decref(post(t, 200, h.resume, "{}"));
	assert_false(shows_paused(t, &h));
	json_decref(post(t, 200, h.exec, "{\"command\": [\"true\"]}"));
}

static bool is_lost(const struct api_test *t, const char *path)
{
	_cleanup_buf_ struct buf out = { 0 };

	return call_raw(t, CALL("POST", path, "{}"), &out) == 409 &&
	       strstr(buf_str(&out), "\"lease_lost\"");
}

static void a_paused_place_whose_relay_died_is_lost(void **state)
{
	struct api_test *t = *state;
	_cleanup_held_ struct memory_log h = { 0 };
	_cleanup_buf_ struct buf text = { 0 };
	int pid = 0;

	if (!can_pause(t, &h))
		return;
	hold_counting(t, &h);
	put(t, h.pause, true);
	PATH("%s/keeper/places/%s/relay", t->data, h.place);

	assert_int_equal(file_read(AT_FDCWD, path, &text, 4096, NULL), 0);
	assert_int_equal(sscanf(buf_str(&text), "%d", &pid), 1);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	WAIT_FOR(is_lost(t, h.resume));
	assert_true(is_lost(t, h.pause));
	/* Nothing of it is left, frozen or not. */
	WAIT_FOR(kill(h.pid, 0) < 0);
	json_decref(post(t, 200, h.release, "{}"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(a_paused_lease_stands_still_takes_no_command_and_goes_on),
		api_unit_test(a_pause_outlives_the_server),
		api_unit_test(a_pause_that_was_cut_short_is_finished_by_the_next_server),
		api_unit_test(a_paused_lease_is_released_and_the_next_holder_finds_nothing_of_it),
		api_unit_test(a_place_without_a_relay_cannot_be_paused),
		api_unit_test(a_paused_place_whose_relay_died_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
