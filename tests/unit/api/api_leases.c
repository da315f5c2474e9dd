#include <sys/socket.h>
#include <sys/un.h>
#include "fixture.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

static int64_t count(struct api_test *t, const char *what)
{
	_cleanup_json_ json_t *health = get(t, "/api/health");

	return json_int(json_object_at(health, "leases"), what, -1);
}

static void a_lease_is_acquired_shown_renewed_and_released(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{\"ttlSeconds\": 60}");
	PATH("/api/environment-leases/%s", json_str(lease, "id"));
	_cleanup_free_ char *renew = xasprintf("%s/renew", path);
	_cleanup_free_ char *release = xasprintf("%s/release", path);

	assert_string_equal(json_str(lease, "status"), "active");
	assert_string_equal(json_str(lease, "environmentId"), t->box);
	assert_int_equal(json_int(lease, "generation", 0), 1);

	_cleanup_json_ json_t *shown = get(t, path);
	_cleanup_json_ json_t *renewed =
		post(t, 200, renew, "{\"generation\": 1, \"ttlSeconds\": 600}");
	_cleanup_json_ json_t *released = post(t, 200, release, "{\"generation\": 1}");
	_cleanup_json_ json_t *again = post(t, 200, release, "{\"generation\": 1}");

	assert_string_equal(json_str(shown, "id"), json_str(lease, "id"));
	assert_true(strcmp(json_str(renewed, "expiresAt"), json_str(lease, "expiresAt")) > 0);
	assert_string_equal(json_str(released, "status"), "released");
	assert_string_equal(json_str(again, "status"), "released");
	refused(t, 409, "lease_not_active", NULL, CALL("POST", renew, "{\"generation\": 1}"));
}

static void a_lease_without_a_time_limit_gets_one(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->local, NULL);
	int64_t acquired, expires;

	assert_int_equal(time_parse_iso(json_str(lease, "acquiredAt"), &acquired), 0);
	assert_int_equal(time_parse_iso(json_str(lease, "expiresAt"), &expires), 0);
	assert_in_range(expires - acquired, 3599000, 3601000);
}

static void a_stale_generation_is_refused_everywhere(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *old = acquire(t, t->box, "{}");
	PATH("/api/environment-leases/%s", json_str(old, "id"));
	_cleanup_free_ char *release = xasprintf("%s/release", path);

	json_decref(post(t, 200, release, "{\"generation\": 1}"));

	_cleanup_json_ json_t *new = acquire(t, t->box, "{}");
	_cleanup_free_ char *base = xasprintf("/api/environment-leases/%s", json_str(new, "id"));
	static const char *const acts[] = { "renew", "release", "exec" };

	assert_int_equal(json_int(new, "generation", 0), 2);
	for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
		_cleanup_free_ char *act = xasprintf("%s/%s", base, acts[i]);

		refused(t, 409, "lease_generation_stale", NULL,
			CALL("POST", act,
			     i == 2 ? "{\"generation\": 1, \"command\": [\"true\"]}"
				    : "{\"generation\": 1}"));
	}
}

static void bad_requests_for_a_lease_change_nothing(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s/leases", t->box);
	static const char *const bad[] = {
		"{\"ttlSeconds\": 0}",        "{\"ttlSeconds\": 604801}",
		"{\"ttlSeconds\": \"9\"}",    "{\"ttlSeconds\": 1.5}",
		"{\"idleSeconds\": -1}",      "{\"waitSeconds\": 3601}",
		"{\"policy\": \"for_ever\"}", "{\"agentId\": \"x\"}",
		"{\"unknown\": 1}",           "{\"ttlSeconds\": 99999999999999999999}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_json_ json_t *answer = call_json(t, 400, CALL("POST", path, bad[i]));

		assert_non_null(json_str(answer, "code"));
	}
	refused(t, 422, "unprocessable", "agentId",
		CALL("POST", path, "{\"agentId\": \"" NOWHERE "\"}"));
	refused(t, 422, "unprocessable", "issueId",
		CALL("POST", path, "{\"issueId\": \"" NOWHERE "\"}"));
	assert_int_equal(count(t, "active"), 0);
}

static void what_a_lease_is_for_must_be_of_its_company(void **state)
{
	struct api_test *t = *state;
	char other[ID_SIZE], agent[ID_SIZE];

	take_id(post(t, 201, "/api/companies", "{\"name\": \"other\"}"), other);
	{
		PATH("/api/companies/%s/agents", other);
		take_id(post(t, 201, path, "{\"name\": \"spy\"}"), agent);
	}

	PATH("/api/environments/%s/leases", t->box);
	_cleanup_free_ char *body = xasprintf("{\"agentId\": \"%s\"}", agent);

	refused(t, 422, "unprocessable", "agentId", CALL("POST", path, body));
}

static void RO_21_one_lease_is_shown(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	PATH("/api/environment-leases/%s", json_str(lease, "id"));
	_cleanup_json_ json_t *shown = get(t, path);

	assert_string_equal(json_str(shown, "id"), json_str(lease, "id"));
	assert_string_equal(json_str(shown, "environmentId"), t->box);
	assert_string_equal(json_str(shown, "status"), "active");
}

static void RO_20_leases_are_listed_by_status(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	PATH("/api/environments/%s/leases?status=active", t->box);
	_cleanup_free_ char *released =
		xasprintf("/api/environments/%s/leases?status=released", t->box);
	_cleanup_json_ json_t *active = get(t, path);
	_cleanup_json_ json_t *none = get(t, released);

	assert_int_equal(json_array_size(active), 1);
	assert_string_equal(json_str(json_array_get(active, 0), "id"), json_str(lease, "id"));
	assert_int_equal(json_array_size(none), 0);
}

static void a_busy_place_is_told_with_the_reason(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *holder = acquire(t, t->box, "{}");
	PATH("/api/environments/%s/leases", t->box);
	_cleanup_json_ json_t *answer = call_json(t, 409, CALL("POST", path, "{}"));

	assert_string_equal(json_str(answer, "code"), "place_busy");
	assert_string_equal(json_str(json_object_at(answer, "details"), "holderLeaseId"),
			    json_str(holder, "id"));
}

/* Whoever hangs up while waiting must not be handed a place nobody will ever release. */
static void a_client_that_stops_waiting_gives_up_its_turn(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *holder = acquire(t, t->box, "{}");
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static const char body[] = "{\"waitSeconds\": 3600}";
	_cleanup_free_ char *text =
		xasprintf("POST /api/environments/%s/leases HTTP/1.1\r\nHost: x\r\nContent-Type: "
			  "application/json\r\nContent-Length: %zu\r\n\r\n%s",
			  t->box, sizeof(body) - 1, body);

	memcpy(name.sun_path, t->socket, strlen(t->socket));
	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
	WAIT_FOR(count(t, "waiting") == 1);
	close(fd);
	WAIT_FOR(count(t, "waiting") == 0);

	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(holder, "id"));

	json_decref(post(t, 200, release, "{}"));
	assert_int_equal(count(t, "active"), 0);
}

static void a_lease_asked_for_twice_under_a_key_is_one_lease(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s/leases", t->local);
	_cleanup_json_ json_t *one = call_json(t, 201, CALL("POST", path, "{}", "key-1"));
	_cleanup_json_ json_t *two = call_json(t, 201, CALL("POST", path, "{}", "key-1"));
	_cleanup_json_ json_t *other = call_json(t, 201, CALL("POST", path, "{}", "key-2"));

	assert_true(json_equal(one, two));
	assert_string_not_equal(json_str(one, "id"), json_str(other, "id"));
	assert_int_equal(count(t, "active"), 2);
	refused(t, 409, "idempotency_key_reused", NULL,
		CALL("POST", path, "{\"ttlSeconds\": 9}", "key-1"));

	/* The first answer, not what has become of it. */
	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(one, "id"));

	json_decref(post(t, 200, release, "{}"));

	_cleanup_json_ json_t *late = call_json(t, 201, CALL("POST", path, "{}", "key-1"));

	assert_true(json_equal(one, late));
}

static void a_refused_request_leaves_its_key_free(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *holder = acquire(t, t->box, "{}");
	PATH("/api/environments/%s/leases", t->box);
	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(holder, "id"));

	refused(t, 409, "place_busy", NULL, CALL("POST", path, "{}", "later"));
	json_decref(post(t, 200, release, "{}"));

	_cleanup_json_ json_t *lease = call_json(t, 201, CALL("POST", path, "{}", "later"));

	assert_int_equal(json_int(lease, "generation", 0), 2);
}

static void an_unknown_lease_is_404(void **state)
{
	struct api_test *t = *state;
	static const char *const base = "/api/environment-leases/" NOWHERE;
	PATH("%s/exec", base);
	_cleanup_free_ char *release = xasprintf("%s/release", base);
	_cleanup_free_ char *renew = xasprintf("%s/renew", base);

	refused(t, 404, "not_found", NULL, CALL("GET", base));
	refused(t, 404, "not_found", NULL, CALL("POST", release, "{}"));
	refused(t, 404, "not_found", NULL, CALL("POST", renew, "{\"generation\": 1}"));
	refused(t, 404, "not_found", NULL, CALL("POST", path, "{\"command\": [\"true\"]}"));
	refused(t, 404, "not_found", NULL, CALL("POST", path, "{\"command\": [\"true\"]}", "k"));
}

static void an_operators_lease_lives_through_a_restart(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *lease = acquire(t, t->box, "{}");
	PATH("/api/environment-leases/%s", json_str(lease, "id"));
	_cleanup_free_ char *exec = xasprintf("%s/exec?stream=0", path);

	server_end(t);
	server_begin(t, true);

	_cleanup_json_ json_t *still = get(t, path);
	_cleanup_json_ json_t *ran =
		post(t, 200, exec, "{\"command\": [\"echo\", \"on\"], \"generation\": 1}");
	_cleanup_json_ json_t *audit = get(t, "/api/audit");

	assert_string_equal(json_str(still, "status"), "active");
	assert_string_equal(json_str(ran, "stdout"), "on\n");
	assert_int_equal(json_array_size(audit), 0);
}

/* A sandbox of the fake provider with more in its config. */
static void add_box(struct api_test *t, const char *name, const char *config, char id[ID_SIZE])
{
	PATH("/api/companies/%s/environments", t->company);
	_cleanup_free_ char *body =
		xasprintf("{\"name\": \"%s\", \"driver\": \"sandbox\","
			  " \"config\": {\"provider\": \"fake\", \"reuseLease\": true%s}}",
			  name, config);

	take_id(post(t, 201, path, body), id);
}

static json_t *destroy(struct api_test *t, const json_t *lease)
{
	PATH("/api/environment-leases/%s/destroy", json_str(lease, "id"));

	return post(t, 200, path, "{}");
}

static void held_retained_and_free_places_can_be_destroyed(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *held = acquire(t, t->box, "{}"), *ended = destroy(t, held);

	assert_string_equal(json_str(ended, "status"), "failed");
	assert_string_equal(json_str(ended, "placeState"), "gone");

	_cleanup_json_ json_t *kept = acquire(t, t->box, "{\"policy\": \"retain_on_failure\"}");
	PATH("/api/environment-leases/%s/release", json_str(kept, "id"));

	json_decref(post(t, 200, path, "{\"status\": \"failed\"}"));
	assert_int_equal(count(t, "retained"), 1);

	_cleanup_json_ json_t *unkept = destroy(t, kept);

	assert_string_equal(json_str(unkept, "placeState"), "gone");
	assert_int_equal(count(t, "retained"), 0);

	_cleanup_json_ json_t *last = acquire(t, t->box, "{}");
	_cleanup_free_ char *release =
		xasprintf("/api/environment-leases/%s/release", json_str(last, "id"));

	json_decref(post(t, 200, release, "{}"));
	assert_int_equal(count(t, "free"), 1);

	_cleanup_json_ json_t *gone = destroy(t, last);

	assert_string_equal(json_str(gone, "status"), "released");
	assert_int_equal(count(t, "free"), 0);
}

static void the_place_of_a_later_holder_is_not_destroyed(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *old = acquire(t, t->box, "{}");
	PATH("/api/environment-leases/%s", json_str(old, "id"));
	_cleanup_free_ char *release = xasprintf("%s/release", path);
	_cleanup_free_ char *ruin = xasprintf("%s/destroy", path);

	json_decref(post(t, 200, release, "{}"));

	_cleanup_json_ json_t *new = acquire(t, t->box, "{}");
	_cleanup_free_ char *theirs =
		xasprintf("/api/environment-leases/%s/destroy", json_str(new, "id"));

	refused(t, 409, "place_busy", "held by lease", CALL("POST", ruin, "{}"));
	refused(t, 409, "lease_generation_stale", NULL,
		CALL("POST", theirs, "{\"generation\": 1}"));
	assert_int_equal(count(t, "active"), 1);
}

static void a_place_that_cannot_be_destroyed_is_queued_and_carries_the_code(void **state)
{
	struct api_test *t = *state;
	char box[ID_SIZE];

	add_box(t, "stuck",
		", \"faults\": {\"destroy\": {\"fail\": true, \"message\": \"no such cloud\"}}",
		box);

	_cleanup_json_ json_t *lease = acquire(t, box, "{}");
	PATH("/api/environment-leases/%s", json_str(lease, "id"));
	_cleanup_free_ char *ruin = xasprintf("%s/destroy", path);

	refused(t, 502, "lease_cleanup_failed", "no such cloud", CALL("POST", ruin, "{}"));

	_cleanup_json_ json_t *shown = get(t, path), *audit = get(t, "/api/audit");
	const json_t *why = json_object_at(shown, "cleanupError");

	assert_string_equal(json_str(shown, "status"), "pending_cleanup");
	assert_string_equal(json_str(why, "code"), "lease_cleanup_failed");
	assert_string_equal(json_str(json_array_get(audit, 0), "code"), "lease_cleanup_failed");
}

static void a_release_that_failed_carries_the_code(void **state)
{
	struct api_test *t = *state;
	char box[ID_SIZE];

	add_box(t, "stuck", ", \"faults\": {\"release\": {\"fail\": true}}", box);

	_cleanup_json_ json_t *lease = acquire(t, box, "{}");
	PATH("/api/environment-leases/%s/release", json_str(lease, "id"));
	_cleanup_json_ json_t *released = post(t, 200, path, "{}");
	const json_t *why = json_object_at(released, "cleanupError");
	_cleanup_free_ char *list = xasprintf("/api/environments/%s/leases", box);
	_cleanup_json_ json_t *listed = get(t, list), *activity = NULL;
	_cleanup_free_ char *log = xasprintf("/api/companies/%s/activity?limit=1", t->company);
	const json_t *entry;

	assert_string_equal(json_str(released, "status"), "pending_cleanup");
	assert_string_equal(json_str(why, "code"), "lease_release_failed");
	assert_int_equal(json_int(why, "attempts", 0), 1);
	why = json_object_at(json_array_get(listed, 0), "cleanupError");
	assert_non_null(json_str(why, "code"));
	activity = get(t, log);
	entry = json_object_at(json_array_get(json_array_at(activity, "items"), 0), "details");
	assert_string_equal(json_str(entry, "code"), "lease_release_failed");
}

static void a_place_that_cannot_be_reached_is_no_lease(void **state)
{
	struct api_test *t = *state;
	PATH("/api/environments/%s/leases", t->box);

	assert_int_equal(fault_init("driver.open.before:error", NULL), 0);
	refused(t, 502, "transport_resolution_failed", "could not reach", CALL("POST", path, "{}"));
	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_int_equal(count(t, "active"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(a_lease_is_acquired_shown_renewed_and_released),
		api_unit_test(a_lease_without_a_time_limit_gets_one),
		api_unit_test(a_stale_generation_is_refused_everywhere),
		api_unit_test(bad_requests_for_a_lease_change_nothing),
		api_unit_test(what_a_lease_is_for_must_be_of_its_company),
		api_unit_test(RO_21_one_lease_is_shown),
		api_unit_test(RO_20_leases_are_listed_by_status),
		api_unit_test(a_busy_place_is_told_with_the_reason),
		api_unit_test(a_client_that_stops_waiting_gives_up_its_turn),
		api_unit_test(a_lease_asked_for_twice_under_a_key_is_one_lease),
		api_unit_test(a_refused_request_leaves_its_key_free),
		api_unit_test(an_unknown_lease_is_404),
		api_unit_test(an_operators_lease_lives_through_a_restart),
		api_unit_test(held_retained_and_free_places_can_be_destroyed),
		api_unit_test(the_place_of_a_later_holder_is_not_destroyed),
		api_unit_test(a_place_that_cannot_be_destroyed_is_queued_and_carries_the_code),
		api_unit_test(a_place_that_cannot_be_reached_is_no_lease),
		api_unit_test(a_release_that_failed_carries_the_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
