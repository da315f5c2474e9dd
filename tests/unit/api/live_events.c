/* Live events and logs at rest, through the API. */
#include "fixture.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "record/activity.h"
#include "record/event.h"

#define NOWHERE "00000000-0000-4000-8000-000000000000"

struct ear {
	int fd;
	struct buf heard;
};

/* `header` is a whole line or "". */
static void open_ear(const struct api_test *t, const char *company, const char *query,
		     const char *header, struct ear *ear)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	_cleanup_free_ char *request =
		xasprintf("GET /api/companies/%s/events%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
			  company, query, header);

	*ear = (struct ear){ .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	assert_true(strlen(t->socket) < sizeof(name.sun_path));
	memcpy(name.sun_path, t->socket, strlen(t->socket) + 1);
	assert_int_equal(connect(ear->fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(send(ear->fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
}

static void close_ear(struct ear *ear)
{
	close(ear->fd);
	buf_free(&ear->heard);
}

static bool hear(struct ear *ear)
{
	struct pollfd p = { .fd = ear->fd, .events = POLLIN };
	char part[4096];

	if (poll(&p, 1, PATIENCE_MS) <= 0)
		fail_msg("nothing more came behind \"%s\"", buf_str(&ear->heard));

	ssize_t n = recv(ear->fd, part, sizeof(part), 0);

	if (n > 0)
		buf_append(&ear->heard, part, (size_t)n);
	return n > 0;
}

static void expect(struct ear *ear, const char *text)
{
	while (!strstr(buf_str(&ear->heard), text)) {
		if (!hear(ear))
			fail_msg("\"%s\" is not in \"%s\"", text, buf_str(&ear->heard));
	}
}

static void expect_end(struct ear *ear)
{
	while (hear(ear))
		continue;
}

static bool said(const struct ear *ear, const char *text)
{
	return strstr(buf_str(&ear->heard), text);
}

static void make_project(const struct api_test *t, const char *name)
{
	PATH("/api/companies/%s/projects", t->company);
	_cleanup_free_ char *body = xasprintf("{\"name\": \"%s\"}", name);

	json_decref(post(t, 201, path, body));
}

static int64_t newest(const struct api_test *t)
{
	_cleanup_event_page_ struct event_page page = { 0 };

	assert_int_equal(events_after(t->server->db, t->company, 0, 0, &page, NULL), 0);
	return page.now;
}

static void a_change_is_heard_by_those_who_listen(void **state)
{
	struct api_test *t = *state;
	struct ear ear;

	open_ear(t, t->company, "", "", &ear);
	expect(&ear, "retry: 1000\nid: ");
	assert_true(said(&ear, "Content-Type: text/event-stream\r\n"));
	make_project(t, "apollo");
	expect(&ear, "event: activity.logged\ndata: {\"id\":");
	expect(&ear, "\n\n");

	_cleanup_free_ char *id = xasprintf("\nid: %lld\nevent: ", (long long)newest(t));

	assert_true(said(&ear, id));
	assert_true(said(&ear, "\"action\":\"project.created\""));
	close_ear(&ear);
	/* The server notices that nobody is there. */
	WAIT_FOR(http_connections(t->server->http) <= 1);
}

static void a_reader_goes_on_where_it_was(void **state)
{
	struct api_test *t = *state;
	struct ear ear;
	int64_t before = newest(t);

	make_project(t, "one");
	make_project(t, "two");
	make_project(t, "three");

	_cleanup_free_ char *header = xasprintf("Last-Event-ID: %lld\r\n", (long long)before + 1);
	_cleanup_free_ char *query = xasprintf("?follow=0&lastEventId=%lld", (long long)before + 2);
	_cleanup_free_ char *second = xasprintf("\nid: %lld\nevent: ", (long long)before + 2);
	_cleanup_free_ char *third = xasprintf("\nid: %lld\nevent: ", (long long)before + 3);
	_cleanup_free_ char *first = xasprintf("\nid: %lld\nevent: ", (long long)before + 1);

	open_ear(t, t->company, "", header, &ear);
	expect(&ear, third);
	assert_true(said(&ear, second));
	assert_false(said(&ear, first));
	make_project(t, "four");

	_cleanup_free_ char *fourth = xasprintf("\nid: %lld\nevent: ", (long long)before + 4);

	expect(&ear, fourth);
	close_ear(&ear);

	open_ear(t, t->company, query, "", &ear);
	expect_end(&ear);
	assert_true(said(&ear, third));
	assert_false(said(&ear, second));
	close_ear(&ear);
}

static void only_the_types_asked_for(void **state)
{
	struct api_test *t = *state;
	struct ear ear;

	open_ear(t, t->company, "?follow=0&lastEventId=0&types=agent.status,heartbeat.run.queued",
		 "", &ear);
	expect_end(&ear);
	assert_false(said(&ear, "activity.logged"));
	close_ear(&ear);

	PATH("/api/companies/%s/events?types=nonsense", t->company);
	refused(t, 400, "validation_error", "types", CALL("GET", path));
}

static void what_is_gone_is_said_to_be(void **state)
{
	struct api_test *t = *state;
	struct ear ear;

	make_project(t, "old");

	int64_t gone = newest(t);

	assert_true(activity_prune(t->server->db, INT64_MAX, NULL) > 0);
	make_project(t, "new");
	open_ear(t, t->company, "?follow=0&lastEventId=1", "", &ear);
	expect_end(&ear);

	_cleanup_free_ char *reset =
		xasprintf("id: %lld\nevent: reset\ndata: "
			  "{\"companyId\":\"%s\",\"lastEventId\":1,\"oldestId\":%lld}",
			  (long long)gone, t->company, (long long)gone + 1);

	if (!said(&ear, reset))
		fail_msg("no \"%s\" in \"%s\"", reset, buf_str(&ear.heard));
	assert_true(said(&ear, "project.created"));
	close_ear(&ear);

	/* A number that this database has not come to yet is from another. */
	open_ear(t, t->company, "?lastEventId=123456789", "", &ear);
	expect(&ear, "event: reset");
	make_project(t, "newer");
	expect(&ear, "project.created");
	close_ear(&ear);
}

static void bad_requests_are_refused(void **state)
{
	struct api_test *t = *state;

	PATH("/api/companies/%s/events?lastEventId=abc", t->company);
	refused(t, 400, "validation_error", "Last-Event-ID", CALL("GET", path));
	refused(t, 404, "not_found", NULL, CALL("GET", "/api/companies/" NOWHERE "/events"));
}

static void another_companys_events_are_not_heard(void **state)
{
	struct api_test *t = *state;
	struct ear ear;
	char other[ID_SIZE];

	take_id(post(t, 201, "/api/companies", "{\"name\": \"other\"}"), other);
	open_ear(t, other, "?lastEventId=0", "", &ear);
	expect(&ear, "company.created");
	make_project(t, "secret");

	PATH("/api/companies/%s/projects", other);
	json_decref(post(t, 201, path, "{\"name\": \"open\"}"));
	expect(&ear, "project.created");
	assert_false(said(&ear, t->company));
	close_ear(&ear);
}

static void run_to_end(struct api_test *t, const char *body, char id[ID_SIZE])
{
	PATH("/api/companies/%s/runs", t->company);

	take_id(post(t, 201, path, body), id);

	_cleanup_free_ char *one = xasprintf("/api/runs/%s", id);

	for (int left = PATIENCE_MS;; left -= 5) {
		_cleanup_json_ json_t *run = get(t, one);

		if (json_str(run, "finishedAt"))
			return;
		assert_true(left > 0);
		usleep(5000);
	}
}

static void a_run_tells_of_itself_and_its_agent(void **state)
{
	struct api_test *t = *state;
	struct ear ear;
	char agent[ID_SIZE], run[ID_SIZE];

	PATH("/api/companies/%s/agents", t->company);
	take_id(post(t, 201, path, "{\"name\": \"bo\"}"), agent);
	open_ear(t, t->company,
		 "?types=heartbeat.run.queued,heartbeat.run.status,heartbeat.run.log,agent.status",
		 "", &ear);
	expect(&ear, "retry: ");

	_cleanup_free_ char *body = xasprintf("{\"agentId\": \"%s\", \"command\": [\"sh\", \"-c\", "
					      "\"echo hello; sleep 0.8\"]}",
					      agent);

	run_to_end(t, body, run);
	expect(&ear, "\"status\":\"idle\"");

	/* In this order. */
	static const char *const TOLD[] = { "heartbeat.run.queued\ndata",
					    "heartbeat.run.status\ndata",
					    "\"status\":\"running\"",
					    "agent.status\ndata",
					    "\"status\":\"running\"",
					    "heartbeat.run.log\ndata",
					    "\"offset\":0,\"endOffset\":6",
					    "\"status\":\"succeeded\"",
					    "\"logBytes\":6",
					    "agent.status\ndata" };
	const char *at = buf_str(&ear.heard);

	for (size_t i = 0; i < ARRAY_SIZE(TOLD); i++) {
		at = strstr(at, TOLD[i]);
		if (!at)
			fail_msg("%s is missing in %s", TOLD[i], buf_str(&ear.heard));
		at++;
	}
	close_ear(&ear);

	/* The agent's own row agrees, also when a run of it fails. */
	_cleanup_free_ char *one = xasprintf("/api/agents/%s", agent);
	_cleanup_free_ char *fails =
		xasprintf("{\"agentId\": \"%s\", \"command\": [\"false\"]}", agent);
	_cleanup_json_ json_t *idle = get(t, one);
	char failed[ID_SIZE];

	assert_string_equal(json_str(idle, "status"), "idle");
	run_to_end(t, fails, failed);

	_cleanup_json_ json_t *in_error = get(t, one);

	assert_string_equal(json_str(in_error, "status"), "error");

	_cleanup_free_ char *events = xasprintf("/api/heartbeat-runs/%s/events?limit=2", run);
	_cleanup_json_ json_t *list = get(t, events);

	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_str(json_array_get(list, 0), "eventType"), "heartbeat.run.queued");
	assert_string_equal(json_str(json_array_get(list, 1), "agentId"), agent);
}

static void stopping_the_server_ends_the_streams(void **state)
{
	struct api_test *t = *state;
	struct ear ears[3];

	for (size_t i = 0; i < ARRAY_SIZE(ears); i++) {
		open_ear(t, t->company, "", "", &ears[i]);
		expect(&ears[i], "retry: ");
	}
	server_end(t);
	for (size_t i = 0; i < ARRAY_SIZE(ears); i++) {
		expect_end(&ears[i]);
		close_ear(&ears[i]);
	}
	server_begin(t, true);
}

/* ---- logs ---- */

static void the_log_comes_in_pages_with_an_end(void **state)
{
	struct api_test *t = *state;
	char run[ID_SIZE];

	/* "a", then 4 times a character of 3 bytes. */
	run_to_end(t, "{\"command\": [\"printf\", \"a\\u20ac\\u20ac\\u20ac\\u20ac\"]}", run);

	_cleanup_free_ char *first = xasprintf("/api/heartbeat-runs/%s/log?limitBytes=6", run);
	_cleanup_free_ char *rest = xasprintf("/api/heartbeat-runs/%s/log?offset=4", run);
	_cleanup_json_ json_t *page = get(t, first), *more = get(t, rest);
	_cleanup_json_ json_t *line =
		json_parse(json_str(page, "content"), strlen(json_str(page, "content")) - 1, NULL);

	assert_string_equal(json_str(page, "runId"), run);
	assert_string_equal(json_str(line, "chunk"), "a\u20ac");
	assert_string_equal(json_str(line, "stream"), "stdout");
	assert_int_equal(json_int(page, "endOffset", 0), 4);
	assert_int_equal(json_int(page, "nextOffset", 0), 4);
	assert_int_equal(json_int(more, "endOffset", 0), 13);
	assert_int_equal(json_state(more, "nextOffset"), JSON_IS_ABSENT);
	refused(t, 404, "not_found", NULL, CALL("GET", "/api/heartbeat-runs/" NOWHERE "/log"));
}

static void read_all(struct api_test *t, const char *path, const char *accept, struct buf *out)
{
	struct call call = { .method = "GET", .path = path, .accept = accept };

	assert_int_equal(call_raw(t, &call, out), 200);
}

static void a_log_reads_the_same_once_it_is_compressed(void **state)
{
	struct api_test *t = *state;
	_cleanup_buf_ struct buf before = { 0 }, after = { 0 }, tail = { 0 }, output = { 0 };
	char run[ID_SIZE];
	const atomic_bool stop = false;

	run_to_end(t, "{\"command\": [\"seq\", \"1\", \"200000\"]}", run);

	_cleanup_free_ char *path = xasprintf("/api/runs/%s/log", run);
	_cleanup_free_ char *since = xasprintf("/api/runs/%s/log?since=1288888&follow=1", run);
	_cleanup_free_ char *exec = xasprintf("/api/execs/%s/output", run);
	_cleanup_free_ char *plain =
		xasprintf("%s/logs/%s/%s.data", t->data, run + ID_SIZE - 3, run);
	_cleanup_free_ char *packed = xasprintf("%s.zst", plain);

	read_all(t, path, "application/octet-stream", &before);
	assert_int_equal(before.len, 1288895);
	assert_int_equal(access(plain, F_OK), 0);
	assert_int_equal(
		runs_pack_logs(t->server->runs, clock_now(&t->server->clock) + 1000, &stop, NULL),
		0);
	assert_int_equal(access(plain, F_OK), -1);
	assert_int_equal(access(packed, F_OK), 0);
	read_all(t, path, "application/octet-stream", &after);
	assert_int_equal(after.len, before.len);
	assert_memory_equal(after.data, before.data, before.len);
	read_all(t, since, "application/octet-stream", &tail);
	assert_string_equal(buf_str(&tail), "200000\n");
	/* The way that takes the bytes from a file to the socket. */
	read_all(t, exec, "application/octet-stream", &output);
	assert_int_equal(output.len, before.len);
	assert_memory_equal(output.data, before.data, before.len);
	/* What was done is not looked at again, and pruning removes it. */
	assert_int_equal(
		runs_pack_logs(t->server->runs, clock_now(&t->server->clock) + 1000, &stop, NULL),
		0);
	assert_true(runs_prune(t->server->runs, INT64_MAX, false, NULL) >= 1);
	assert_int_equal(access(packed, F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(a_change_is_heard_by_those_who_listen),
		api_unit_test(a_reader_goes_on_where_it_was),
		api_unit_test(only_the_types_asked_for),
		api_unit_test(what_is_gone_is_said_to_be),
		api_unit_test(bad_requests_are_refused),
		api_unit_test(another_companys_events_are_not_heard),
		api_unit_test(a_run_tells_of_itself_and_its_agent),
		api_unit_test(stopping_the_server_ends_the_streams),
		api_unit_test(the_log_comes_in_pages_with_an_end),
		api_unit_test(a_log_reads_the_same_once_it_is_compressed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
