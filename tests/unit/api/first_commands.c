#include <dirent.h>
#include "exec/execs.h"
#include "base/fault.h"
#include "stream.h"

/* Where leases of an environment are asked for. */
static char *leases_of(const char *environment)
{
	return xasprintf("/api/environments/%s/leases", environment);
}

static char *environment_with(struct api_test *t, const char *config)
{
	PATH("/api/companies/%s/environments", t->company);
	_cleanup_free_ char *body =
		xasprintf("{\"name\": \"other\", \"driver\": \"sandbox\", \"config\": %s}", config);
	char id[ID_SIZE];

	take_id(post(t, 201, path, body), id);
	return leases_of(id);
}

static void assert_no_lease(struct api_test *t, const char *path)
{
	_cleanup_json_ json_t *leases = get(t, path), *audit = get(t, "/api/audit");

	assert_int_equal(json_array_size(leases), 0);
	assert_int_equal(json_array_size(json_array_at(audit, "items")), 0);
}

/* How many execs are on record; the name of one of them. */
static size_t records(struct api_test *t, char id[ID_SIZE])
{
	PATH("%s/execs/recent", t->data);
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (id_is_valid(entry->d_name)) {
			id_copy(id, entry->d_name);
			count++;
		}
	closedir(dir);
	return count;
}

static json_t *record_of(struct api_test *t, const char *id)
{
	PATH("%s/execs/recent/%s", t->data, id);
	_cleanup_buf_ struct buf text = { 0 };

	assert_int_equal(file_read(AT_FDCWD, path, &text, 65536, NULL), 0);
	return json_parse(buf_str(&text), text.len, NULL);
}

/* {type: lease}, {type: start}, output "said", {type: exit} with 3. The lease is the caller's. */
static json_t *assert_said(struct api_test *t, const char *path)
{
	_cleanup_json_ json_t *lines = run_stream_as(
		t, 201,
		CALL("POST", path,
		     "{\"ttlSeconds\": 60, \"exec\": {\"command\": "
		     "[\"sh\", \"-c\", \"printf $A; exit 3\"], \"env\": {\"A\": \"said\"}}}"));
	const json_t *first = json_array_get(lines, 0);
	_cleanup_buf_ struct buf out = { 0 };

	gather(lines, "stdout", &out);
	assert_string_equal(json_str(first, "type"), "lease");
	assert_string_equal(json_str(json_array_get(lines, 1), "type"), "start");
	assert_string_equal(buf_str(&out), "said");
	assert_string_equal(json_str(last_of(lines), "type"), "exit");
	assert_int_equal(json_int(last_of(lines), "exitCode", -1), 3);
	return json_incref(json_object_at(first, "lease"));
}

static void a_lease_comes_with_what_its_first_command_says(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	_cleanup_json_ json_t *lease = assert_said(t, leases);
	PATH("/api/environment-leases/%s", json_str(lease, "id"));
	_cleanup_free_ char *exec = xasprintf("%s/exec?stream=0", path);
	_cleanup_free_ char *release = xasprintf("%s/release", path);
	_cleanup_json_ json_t *shown = get(t, path);

	assert_true(json_equal(lease, shown));
	assert_string_equal(json_str(shown, "status"), "active");
	/* It is a lease like any other. */
	_cleanup_json_ json_t *second = post(t, 200, exec, "{\"command\": [\"echo\", \"more\"]}");

	assert_string_equal(json_str(second, "stdout"), "more\n");
	json_decref(post(t, 200, release, "{}"));
}

static void a_place_that_is_used_again_takes_its_first_command_too(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);

	for (int generation = 1; generation <= 3; generation++) {
		_cleanup_json_ json_t *lease = assert_said(t, leases);
		PATH("/api/environment-leases/%s/release", json_str(lease, "id"));

		assert_int_equal(json_int(lease, "generation", 0), generation);
		json_decref(post(t, 200, path, "{}"));
	}
}

static void places_of_every_kind_take_one(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *local = leases_of(t->local);
	_cleanup_free_ char *shell =
		environment_with(t, "{\"provider\": \"fake\", \"relay\": false}");

	json_decref(assert_said(t, local));
	json_decref(assert_said(t, shell));
}

static void a_command_that_goes_on_streams_and_ends_with_its_lease(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	_cleanup_free_ char *active = xasprintf("%s?status=active", leases);
	_cleanup_json_ json_t *held = NULL;
	_cleanup_buf_ struct buf got = { 0 };
	int fd = open_stream(t, leases,
			     "{\"exec\": {\"command\": [\"sh\", \"-c\", \"echo up; sleep 1000\"]}}",
			     NULL);
	char part[512];
	ssize_t n;

	held = get(t, active);
	assert_int_equal(json_array_size(held), 1);

	PATH("/api/environment-leases/%s/release", json_str(json_array_get(held, 0), "id"));

	json_decref(post(t, 200, path, "{}"));
	while (!strstr(buf_str(&got), "\"exit\"") && (n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_append(&got, part, (size_t)n);
	assert_non_null(strstr(buf_str(&got), "\"reason\":\"lease_lost\""));
	close(fd);
}

/* The only exec of the only active lease of the environment, as it is shown. */
static json_t *the_exec(struct api_test *t, const char *leases)
{
	_cleanup_free_ char *active = xasprintf("%s?status=active", leases);
	_cleanup_json_ json_t *held = get(t, active), *execs = NULL;

	assert_int_equal(json_array_size(held), 1);

	PATH("/api/environment-leases/%s/execs", json_str(json_array_get(held, 0), "id"));

	execs = get(t, path);
	assert_int_equal(json_array_size(execs), 1);
	return json_incref(json_array_get(execs, 0));
}

static void one_that_goes_on_has_no_record_and_is_its_relays_to_report(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	int fd = open_stream(t, leases,
			     "{\"exec\": {\"command\": [\"sh\", \"-c\", \"echo up; sleep 1000\"]}}",
			     NULL);
	_cleanup_json_ json_t *before = the_exec(t, leases), *after = NULL;
	char id[ID_SIZE];

	assert_int_equal(records(t, id), 0);
	server_end(t);
	close(fd);
	assert_int_equal(records(t, id), 0);
	server_begin(t, true);
	WAIT_FOR(execs_active(t->server->execs) == 1);
	after = the_exec(t, leases);
	assert_string_equal(json_str(after, "id"), json_str(before, "id"));
	assert_true(
		json_equal(json_object_get(after, "command"), json_object_get(before, "command")));
}

/* Of a lease that was never committed, or ended long ago; as the revision before wrote it. */
static void a_record_without_a_lease_is_nothing_to_the_next_server(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	int fd = open_stream(t, leases,
			     "{\"exec\": {\"command\": [\"sh\", \"-c\", \"echo up; sleep 1000\"]}}",
			     NULL);
	_cleanup_json_ json_t *record = the_exec(t, leases), *found = NULL;
	char other[ID_SIZE];

	server_end(t);
	close(fd);
	id_new(other);
	json_put_str(record, "leaseId", other);
	id_new(other);
	json_put_str(record, "placeId", other);
	id_new(other);
	json_put_str(record, "id", other);

	PATH("%s/execs/begun", t->data);
	_cleanup_free_ char *text = json_text(record), *show = xasprintf("/api/execs/%s", other);

	assert_int_equal(file_replace(AT_FDCWD, path, text, strlen(text), 0600, NULL), 0);
	server_begin(t, true);
	assert_int_equal(access(path, F_OK), -1);
	/* The one that has a lease goes on; the other has ended, and belongs to nobody. */
	WAIT_FOR((json_decref(found), found = record_of(t, other),
		  str_equal(json_str(found, "status"), "ended")));
	WAIT_FOR(execs_active(t->server->execs) == 1);
	assert_string_equal(json_str(found, "reason"), "lease_lost");
	refused(t, 404, "not_found", NULL, CALL("GET", show));
}

static void without_its_first_command_there_is_no_lease(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	char id[ID_SIZE];

	refused(t, 422, "command_not_found", "no-such-program",
		CALL("POST", leases, "{\"exec\": {\"command\": [\"no-such-program\"]}}"));
	refused(t, 422, "command_not_executable", NULL,
		CALL("POST", leases, "{\"exec\": {\"command\": [\"/etc/passwd\"]}}"));
	assert_no_lease(t, leases);
	assert_int_equal(records(t, id), 0);
	/* Nothing is in the way of the next one. */
	json_decref(assert_said(t, leases));
}

static void a_lease_that_cannot_be_written_down_ends_its_first_command(void **state)
{
	static const char *const points[] = { "db.lease.grant.before:error",
					      "db.lease.grant.after:error" };
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	_cleanup_free_ char *mark = xasprintf("%s/started", t->dir);
	_cleanup_free_ char *body = xasprintf(
		"{\"exec\": {\"command\": [\"sh\", \"-c\", \"echo $$ > %s; sleep 1000\"]}}", mark);

	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		_cleanup_buf_ struct buf pid = { 0 };
		char id[ID_SIZE];

		assert_int_equal(fault_init(points[i], NULL), 0);
		refused(t, 502, "lease_acquire_failed", NULL, CALL("POST", leases, body));
		assert_int_equal(fault_init(NULL, NULL), 0);
		assert_no_lease(t, leases);
		assert_int_equal(records(t, id), 0);
		/* It may have been ended before it was there, or before it could say who it is. */
		if (file_read(AT_FDCWD, mark, &pid, 32, NULL) == 0 && pid.len)
			WAIT_FOR(kill(atoi(buf_str(&pid)), 0) < 0);
		unlink(mark);
	}
	json_decref(assert_said(t, leases));
}

static void what_cannot_be_meant_changes_nothing(void **state)
{
	struct api_test *t = *state;
	_cleanup_free_ char *leases = leases_of(t->box);
	static const char *const bad[] = {
		"{\"exec\": {}}",
		"{\"exec\": {\"command\": []}}",
		"{\"exec\": {\"command\": [\"\"]}}",
		"{\"exec\": {\"command\": \"true\"}}",
		"{\"exec\": {\"command\": [\"true\"], \"cwd\": \"here\"}}",
		"{\"exec\": {\"command\": [\"true\"], \"generation\": 1}}",
		"{\"exec\": {\"command\": [\"true\"], \"unknown\": 1}}",
		"{\"exec\": {\"command\": [\"true\"], \"stdin\": \"*\", \"stdinEncoding\": "
		"\"base64\"}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		json_decref(call_json(t, 400, CALL("POST", leases, bad[i])));
	/* One key, two things: which of them it stood for could not be told. */
	refused(t, 400, "validation_error", "Idempotency-Key",
		CALL("POST", leases, "{\"exec\": {\"command\": [\"true\"]}}", "k"));
	assert_no_lease(t, leases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(a_lease_comes_with_what_its_first_command_says),
		api_unit_test(a_place_that_is_used_again_takes_its_first_command_too),
		api_unit_test(places_of_every_kind_take_one),
		api_unit_test(a_command_that_goes_on_streams_and_ends_with_its_lease),
		api_unit_test(one_that_goes_on_has_no_record_and_is_its_relays_to_report),
		api_unit_test(a_record_without_a_lease_is_nothing_to_the_next_server),
		api_unit_test(without_its_first_command_there_is_no_lease),
		api_unit_test(a_lease_that_cannot_be_written_down_ends_its_first_command),
		api_unit_test(what_cannot_be_meant_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
