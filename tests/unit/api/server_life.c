#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "server/data_dir.h"
#include "server/maintenance.h"
#include "fixture.h"

static int dir_up(void **state)
{
	struct api_test *t = xcalloc(1, sizeof(*t));

	make_dir(t);
	*state = t;
	return 0;
}

static int dir_down(void **state)
{
	struct api_test *t = *state;

	server_end(t);
	remove_dir(t);
	free(t);
	return 0;
}

static void a_second_server_is_told_who_holds_the_directory(void **state)
{
	struct api_test *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct server_options options = { .data_path = t->data };
	struct server *second;
	char pid[32];

	server_begin(t, false);
	snprintf(pid, sizeof(pid), "pid %d ", (int)getpid());
	assert_int_equal(server_start(&options, &second, &err), -1);
	assert_int_equal(err.code, ERR_LOCKED);
	assert_non_null(strstr(err.message, pid));

	/* And the first one does not notice. */
	_cleanup_json_ json_t *health = get(t, "/api/health");

	assert_string_equal(json_str(health, "status"), "ok");
}

static pid_t child_that(bool lingers)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (lingers)
			usleep(50000);
		_exit(0);
	}
	return pid;
}

static void a_lock_that_only_a_child_of_the_dead_has_is_waited_for(void **state)
{
	struct api_test *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct clock clock;
	_cleanup_close_ int dirfd = -1, lock = -1;
	pid_t dead = child_that(false), child;
	int held;

	clock_init_system(&clock);
	assert_int_equal(waitpid(dead, NULL, 0), dead);
	assert_int_equal(data_open(t->data, &dirfd, &err), 0);
	held = openat(dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(flock(held, LOCK_EX), 0);
	assert_true(dprintf(held, "{\"pid\":%d}", (int)dead) > 0);
	child = child_that(true);
	close(held);
	assert_int_equal(data_lock(dirfd, t->data, &clock, &lock, &err), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void the_directory_and_the_socket_are_private(void **state)
{
	struct api_test *t = *state;
	struct stat st;

	assert_int_equal(mkdir(t->data, 0755), 0);
	server_begin(t, false);
	assert_int_equal(stat(t->data, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(t->socket, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_directory_of_somebody_else_is_refused(void **state)
{
	struct api_test *t = *state;
	_cleanup_error_ struct error err = { 0 };
	int fd;

	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdir(t->data, 0755), 0);
	assert_int_equal(chown(t->data, 65534, 65534), 0);
	assert_int_equal(data_open(t->data, &fd, &err), -1);
	assert_int_equal(err.code, ERR_FORBIDDEN);
}

static int connect_to(int dirfd, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dirfd, name);

	int r = connect(fd, (struct sockaddr *)&address, sizeof(address));

	close(fd);
	return r;
}

static void a_socket_may_lie_deeper_than_its_address_can_say(void **state)
{
	struct api_test *t = *state;
	_cleanup_buf_ struct buf path = { 0 };
	_cleanup_close_ int dirfd = -1;

	buf_puts(&path, t->dir);
	for (int i = 0; i < 12; i++)
		buf_puts(&path, "/a-rather-long-name");
	snprintf(t->data, sizeof(t->data), "%s", t->dir);

	_cleanup_error_ struct error err = { 0 };
	struct server_options options = { .data_path = buf_str(&path) };

	if (server_start(&options, &t->server, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(dir_open(AT_FDCWD, buf_str(&path), &dirfd, NULL), 0);
	assert_int_equal(connect_to(dirfd, "berth.sock"), 0);
	server_end(t);
	assert_int_equal(faccessat(dirfd, "berth.sock", F_OK, 0), -1);
}

static void what_lies_in_the_way_of_the_socket_is_looked_at(void **state)
{
	struct api_test *t = *state;
	_cleanup_error_ struct error err = { 0 }, busy = { 0 };
	PATH("%s/s", t->dir);
	int fd, second;

	assert_int_equal(file_replace(AT_FDCWD, path, "precious", 8, 0600, NULL), 0);
	assert_int_equal(socket_listen(path, &fd, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);

	assert_int_equal(socket_listen(path, &fd, &err), 0);
	assert_int_equal(socket_listen(path, &second, &busy), -1);
	assert_int_equal(busy.code, ERR_LOCKED);
	close(fd);
	/* Nobody listens any more: what is left is a corpse. */
	assert_int_equal(socket_listen(path, &fd, &err), 0);
	close(fd);
}

static void sigterm_stops_the_server(void **state)
{
	struct api_test *t = *state;
	struct server_options options = { .data_path = t->data };

	assert_int_equal(server_start(&options, &t->server, NULL), 0);
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	assert_int_equal(server_run(t->server, NULL), 0);
	assert_int_equal(access(t->socket, F_OK), -1);
}

static void an_idle_server_ends_when_asked_to(void **state)
{
	struct api_test *t = *state;
	struct server_options options = { .data_path = t->data,
					  .idle_exit = true,
					  .idle_exit_ms = 1 };

	assert_int_equal(server_start(&options, &t->server, NULL), 0);
	assert_int_equal(server_run(t->server, NULL), 0);
}

/* Only where there is none at all: a company that was renamed does not come back. */
static void the_first_start_makes_a_company_and_later_ones_do_not(void **state)
{
	struct api_test *t = *state;
	struct server_options options = { .data_path = t->data };
	char sandbox[ID_SIZE], again[ID_SIZE];

	assert_int_equal(server_start(&options, &t->server, NULL), 0);

	_cleanup_json_ json_t *first = get(t, "/api/companies");

	assert_int_equal(json_array_size(first), 1);
	assert_string_equal(json_str(json_array_get(first, 0), "name"), "default");
	environment_named(t, "default", "Sandbox", sandbox);
	json_decref(
		call_json(t, 200, CALL("PATCH", "/api/companies/default", "{\"name\": \"x\"}")));
	server_end(t);
	assert_int_equal(server_start(&options, &t->server, NULL), 0);

	_cleanup_json_ json_t *second = get(t, "/api/companies");

	assert_int_equal(json_array_size(second), 1);
	assert_string_equal(json_str(json_array_get(second, 0), "name"), "x");
	environment_named(t, "x", "Sandbox", again);
	assert_string_equal(sandbox, again);
}

static void a_server_with_a_lease_to_see_to_is_not_idle(void **state)
{
	struct api_test *t = *state;
	struct server_options options = { .data_path = t->data, .idle_exit_ms = 1 };
	char company[ID_SIZE], local[ID_SIZE], lease[ID_SIZE];

	assert_int_equal(server_start(&options, &t->server, NULL), 0);
	take_id(post(t, 201, "/api/companies", "{\"name\": \"c\"}"), company);
	WAIT_FOR(maintenance_is_idle(t->server));

	environment_named(t, company, "Local", local);
	take_id(acquire(t, local, "{}"), lease);
	WAIT_FOR(http_idle_since(t->server->http) &&
		 http_idle_since(t->server->http) + 10 < clock_mono(&t->server->clock));
	assert_false(maintenance_is_idle(t->server));

	_cleanup_free_ char *release = xasprintf("/api/environment-leases/%s/release", lease);

	json_decref(post(t, 200, release, "{}"));
	WAIT_FOR(maintenance_is_idle(t->server));
}

static void a_server_that_cannot_start_leaves_the_directory_free(void **state)
{
	struct api_test *t = *state;
	struct server_options options = { .data_path = t->data, .listen = "10.1.2.3:1" };
	_cleanup_error_ struct error err = { 0 };

	assert_int_equal(server_start(&options, &t->server, &err), -1);
	assert_int_equal(err.code, ERR_VALIDATION);
	server_begin(t, false);
}

static void health_tells_the_owner_how_things_are(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *health = NULL;

	server_begin(t, false);
	health = get(t, "/api/health");
	assert_string_equal(json_str(health, "status"), "ok");
	assert_string_equal(json_str(health, "version"), BERTH_VERSION);
	assert_string_equal(json_str(health, "nodeId"), t->server->node.id);
	assert_int_equal(json_int(health, "bootEpoch", 0), 1);
	assert_string_equal(json_str(json_object_at(health, "database"), "engine"), "sqlite");
	assert_memory_equal(json_str(json_object_at(health, "database"), "library"), "SQLite 3.",
			    strlen("SQLite 3."));
	assert_int_equal(json_array_size(json_array_at(health, "warnings")), 0);

	server_end(t);
	server_begin(t, false);

	_cleanup_json_ json_t *later = get(t, "/api/health");

	assert_int_equal(json_int(later, "bootEpoch", 0), 2);
	assert_string_equal(json_str(later, "nodeId"), json_str(health, "nodeId"));
}

static void a_backup_is_a_database(void **state)
{
	struct api_test *t = *state;
	_cleanup_json_ json_t *backup = NULL;
	struct db *db;

	server_begin(t, false);
	json_decref(post(t, 201, "/api/companies", "{\"name\": \"kept\"}"));
	backup = post(t, 201, "/api/backup", NULL);
	refused(t, 400, "validation_error", "absolute",
		CALL("POST", "/api/backup", "{\"path\": \"here.db\"}"));
	assert_true(json_int(backup, "bytes", 0) > 0);
	assert_int_equal(
		db_open(&db, &(struct db_options){ .path = json_str(backup, "path") }, NULL), 0);

	struct company company = { 0 };

	assert_int_equal(company_get_by_name(db, "kept", &company, NULL), 0);
	company_clear(&company);
	db_close(db);
}

static void pruning_says_what_went(void **state)
{
	struct api_test *t = *state;
	char company[ID_SIZE], run[ID_SIZE];

	server_begin(t, false);
	take_id(post(t, 201, "/api/companies", "{\"name\": \"c\"}"), company);

	PATH("/api/companies/%s/runs", company);

	take_id(post(t, 201, path, "{\"command\": [\"true\"]}"), run);

	_cleanup_free_ char *log = xasprintf("/api/runs/%s/log?follow=1", run);
	_cleanup_free_ char *shown = xasprintf("/api/runs/%s", run);
	_cleanup_buf_ struct buf out = { 0 };

	assert_int_equal(call_raw(t, CALL("GET", log), &out), 200);

	_cleanup_json_ json_t *nothing = post(t, 200, "/api/prune", NULL);

	assert_int_equal(json_int(nothing, "runs", -1), 0);
	WAIT_FOR(({
		_cleanup_json_ json_t *counts =
			post(t, 200, "/api/prune", "{\"olderThanSeconds\": 0}");
		json_int(counts, "runs", 0) == 1;
	}));
	refused(t, 404, "not_found", NULL, CALL("GET", shown));
}

#define life_test(f) cmocka_unit_test_setup_teardown(f, dir_up, dir_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		life_test(a_second_server_is_told_who_holds_the_directory),
		life_test(a_lock_that_only_a_child_of_the_dead_has_is_waited_for),
		life_test(the_directory_and_the_socket_are_private),
		life_test(a_directory_of_somebody_else_is_refused),
		life_test(a_socket_may_lie_deeper_than_its_address_can_say),
		life_test(what_lies_in_the_way_of_the_socket_is_looked_at),
		life_test(sigterm_stops_the_server),
		life_test(an_idle_server_ends_when_asked_to),
		life_test(the_first_start_makes_a_company_and_later_ones_do_not),
		life_test(a_server_with_a_lease_to_see_to_is_not_idle),
		life_test(a_server_that_cannot_start_leaves_the_directory_free),
		life_test(health_tells_the_owner_how_things_are),
		life_test(a_backup_is_a_database),
		life_test(pruning_says_what_went),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
