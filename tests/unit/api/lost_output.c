/*
 * Output and the machine: what has an end on record is on the disk before, and what is gone
 * nevertheless is said to be gone.
 */
#include "exec/execs.h"
#include "stream.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>

/* Every file that was waited for until it was on the disk, one name a line. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char synced[1 << 16];

int fdatasync(int fd)
{
	char link[64], path[512] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) > 0) {
		const char *slash = strrchr(path, '/');

		pthread_mutex_lock(&lock);
		strncat(synced, slash ? slash + 1 : path, sizeof(synced) - strlen(synced) - 2);
		strcat(synced, "\n");
		pthread_mutex_unlock(&lock);
	}
	return (int)syscall(SYS_fdatasync, fd);
}

static bool was_synced(const char *id, const char *suffix)
{
	_cleanup_free_ char *name = xasprintf("%s.%s\n", id, suffix);

	pthread_mutex_lock(&lock);
	bool found = strstr(synced, name) != NULL;
	pthread_mutex_unlock(&lock);
	return found;
}

/* As a machine leaves a log that goes down before it is on the disk. */
static void cut_log(struct api_test *t, const char *logs, const char *id, off_t bytes)
{
	_cleanup_free_ char *pattern = xasprintf("%s/%s", t->data, logs);
	DIR *dir = opendir(pattern);
	struct dirent *entry;
	int cut = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		_cleanup_free_ char *path = xasprintf("%s/%s/%s.data", pattern, entry->d_name, id);

		if (entry->d_name[0] != '.' && truncate(path, bytes) == 0)
			cut++;
	}
	closedir(dir);
	assert_int_equal(cut, 1);
}

static void remove_log(struct api_test *t, const char *id)
{
	_cleanup_free_ char *command = xasprintf("find %s/logs -name '%s*' -delete", t->data, id);

	assert_int_equal(system(command), 0);
}

static void start_run(struct api_test *t, char id[ID_SIZE])
{
	PATH("/api/companies/%s/runs", t->company);
	_cleanup_free_ char *body = xasprintf("{\"command\": [\"echo\", \"0123456789\"],"
					      " \"environmentId\": \"%s\"}",
					      t->local);

	take_id(post(t, 201, path, body), id);
}

static json_t *log_of(struct api_test *t, const char *id, const char *query)
{
	PATH("/api/runs/%s/log%s", id, query);

	return run_stream(t, CALL("GET", path));
}

static void the_output_of_a_run_is_on_the_disk_before_its_end_is_on_record(void **state)
{
	struct api_test *t = *state;
	char id[ID_SIZE];

	start_run(t, id);
	json_decref(log_of(t, id, "?follow=1"));
	assert_true(was_synced(id, "data"));
	assert_true(was_synced(id, "index"));
}

static void a_run_whose_output_is_gone_says_how_much(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *whole = NULL, *cut = NULL, *gone = NULL, *page = NULL;
	char id[ID_SIZE];
	const json_t *mark;

	start_run(t, id);
	whole = log_of(t, id, "?follow=1");
	assert_int_equal(json_state(last_of(whole), "outputLost"), JSON_IS_ABSENT);
	cut_log(t, "logs", id, 4);
	cut = log_of(t, id, "");
	assert_int_equal(json_int(last_of(cut), "outputLost", 0), 11);
	mark = json_array_get(cut, json_array_size(cut) - 2);
	assert_string_equal(json_str(mark, "type"), "truncated");
	assert_int_equal(json_int(mark, "lost", 0), 11);

	remove_log(t, id);
	gone = log_of(t, id, "?follow=1");
	assert_int_equal(json_int(last_of(gone), "outputLost", 0), 11);

	PATH("/api/heartbeat-runs/%s/log", id);
	page = get(t, path);
	assert_int_equal(json_int(page, "outputLost", 0), 11);
}

static void a_key_whose_output_is_gone_says_that_it_is_truncated(void **state)
{
	struct api_test *t = *state;
	static const char body[] = "{\"command\": [\"echo\", \"0123456789\"]}";
	_cleanup_json_ json_t *first = NULL, *again = NULL, *stream = NULL, *exec = NULL;
	char lease[ID_SIZE];

	take_id(acquire(t, t->local, "{}"), lease);

	_cleanup_free_ char *whole = xasprintf("/api/environment-leases/%s/exec?stream=0", lease);
	_cleanup_free_ char *events = xasprintf("/api/environment-leases/%s/exec", lease);

	first = call_json(t, 200, CALL("POST", whole, body, "k"));
	assert_string_equal(json_str(first, "stdout"), "0123456789\n");
	assert_false(json_bool(first, "stdoutTruncated", true));
	assert_true(was_synced(json_str(first, "execId"), "data"));
	assert_true(was_synced(json_str(first, "execId"), "index"));

	/* The server has nothing more to do with it: only its record and its log are left. */
	WAIT_FOR(execs_active(t->server->execs) == 0);
	cut_log(t, "execs/logs", json_str(first, "execId"), 0);
	again = call_json(t, 200, CALL("POST", whole, body, "k"));
	assert_int_equal(json_int(again, "exitCode", -1), 0);
	assert_string_equal(json_str(again, "stdout"), "");
	assert_true(json_bool(again, "stdoutTruncated", false));
	assert_int_equal(json_int(again, "outputLost", 0), 11);

	stream = run_stream(t, CALL("POST", events, body, "k"));
	assert_int_equal(json_int(last_of(stream), "outputLost", 0), 11);
	assert_string_equal(json_str(json_array_get(stream, json_array_size(stream) - 2), "type"),
			    "truncated");

	PATH("/api/execs/%s", json_str(first, "execId"));
	exec = get(t, path);
	assert_int_equal(json_int(exec, "outputLost", 0), 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		api_unit_test(the_output_of_a_run_is_on_the_disk_before_its_end_is_on_record),
		api_unit_test(a_run_whose_output_is_gone_says_how_much),
		api_unit_test(a_key_whose_output_is_gone_says_that_it_is_truncated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
