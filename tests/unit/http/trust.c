#include "client.h"
#include "http/trust.h"
#include <sched.h>
#include <sys/wait.h>

struct pair {
	int ours, theirs;
};

static struct pair connect_loopback(const char *address)
{
	struct pair pair;
	int listener, port;
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);

	assert_int_equal(http_bind(address, false, &listener, &port, NULL), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &len), 0);
	pair.theirs = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(pair.theirs, (struct sockaddr *)&name, len), 0);
	pair.ours = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(pair.ours >= 0);
	close(listener);
	return pair;
}

static void our_own_socket_is_trusted(void **state)
{
	static const char *const addresses[] = { "127.0.0.1:0", "[::1]:0" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct pair pair = connect_loopback(addresses[i]);
		uid_t uid = (uid_t)-1;

		assert_int_equal(peer_uid(pair.ours, &uid, NULL), 0);
		assert_int_equal(uid, geteuid());
		assert_true(peer_is_trusted(pair.ours));
		close(pair.ours);
		close(pair.theirs);
	}
}

/*
 * The kernel reports a socket that nobody holds any more as root's. Closing at the right moment
 * must not make a stranger root.
 */
static void a_peer_that_has_closed_is_nobody(void **state)
{
	struct pair pair = connect_loopback("127.0.0.1:0");
	_cleanup_error_ struct error err = { 0 };
	uid_t uid;

	(void)state;
	assert_int_equal(send(pair.theirs, "x", 1, 0), 1);
	close(pair.theirs);
	assert_int_equal(peer_uid(pair.ours, &uid, &err), -1);
	assert_int_equal(err.code, ERR_FORBIDDEN);
	assert_false(peer_is_trusted(pair.ours));
	close(pair.ours);
}

static void a_peer_that_only_stopped_sending_is_still_known(void **state)
{
	struct pair pair = connect_loopback("127.0.0.1:0");

	(void)state;
	shutdown(pair.theirs, SHUT_WR);
	assert_true(peer_is_trusted(pair.ours));
	close(pair.ours);
	close(pair.theirs);
}

static void another_users_socket_is_not_trusted(void **state)
{
	int listener, port, done[2];
	uid_t uid = 0;
	char byte;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(http_bind("127.0.0.1:0", false, &listener, &port, NULL), 0);
	assert_int_equal(pipe(done), 0);

	pid_t pid = fork();

	if (pid == 0) {
		struct test_server server = { .port = port };

		close(done[1]);
		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(1);
		dial(&server);
		_exit((int)read(done[0], &byte, 1));
	}

	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	assert_int_equal(peer_uid(fd, &uid, NULL), 0);
	assert_int_equal(uid, 65534);
	assert_false(peer_is_trusted(fd));
	close(done[0]);
	close(done[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(fd);
	close(listener);
}

static void a_unix_peer_is_who_connected(void **state)
{
	int pair[2];
	uid_t uid = (uid_t)-1;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(peer_uid(pair[0], &uid, NULL), 0);
	assert_int_equal(uid, geteuid());
	close(pair[0]);
	close(pair[1]);
	assert_false(peer_is_trusted(pair[0]));
}

struct meeting {
	char dir[64], path[96];
	int listener;
};

static struct meeting meet(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct meeting m;

	snprintf(m.dir, sizeof(m.dir), "/tmp/berth-trust-XXXXXX");
	assert_non_null(mkdtemp(m.dir));
	assert_int_equal(chmod(m.dir, 0755), 0);
	snprintf(m.path, sizeof(m.path), "%s/s", m.dir);
	memcpy(name.sun_path, m.path, strlen(m.path));
	m.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(m.listener, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(chmod(m.path, 0777), 0);
	assert_int_equal(listen(m.listener, 8), 0);
	return m;
}

static void part(struct meeting *m)
{
	close(m->listener);
	unlink(m->path);
	rmdir(m->dir);
}

static int come(const struct meeting *m)
{
	struct test_server to = { 0 };

	memcpy(to.socket_path, m->path, sizeof(to.socket_path));
	return dial_unix(&to);
}

/* Waits for the other side to let it go. */
static _Noreturn void stay(int fd)
{
	char byte;

	_exit((int)read(fd, &byte, 1));
}

/* A place of an ordinary user's server is such a process: its uid outside is that user's. */
static void a_peer_in_another_user_namespace_is_not_trusted(void **state)
{
	struct meeting m = meet();
	uid_t uid = (uid_t)-1;

	(void)state;

	pid_t pid = fork();

	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) < 0)
			_exit(1);
		stay(come(&m));
	}

	int fd = accept4(m.listener, NULL, NULL, SOCK_CLOEXEC);

	assert_int_equal(peer_uid(fd, &uid, NULL), 0);
	assert_int_equal(uid, geteuid());
	assert_false(peer_is_trusted(fd));
	close(fd);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	part(&m);
}

static void a_peer_of_our_own_namespace_is_trusted(void **state)
{
	struct meeting m = meet();

	(void)state;

	pid_t pid = fork();

	if (pid == 0)
		stay(come(&m));

	int fd = accept4(m.listener, NULL, NULL, SOCK_CLOEXEC);

	assert_true(peer_is_trusted(fd));
	close(fd);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	part(&m);
}

/* Its number may be another process's soon. */
static void a_peer_that_connected_and_ended_is_not_trusted(void **state)
{
	struct meeting m = meet();
	int held[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(held), 0);

	pid_t pid = fork();

	if (pid == 0) {
		come(&m);
		close(held[1]);
		/* The connection stays open in a child of its own. */
		_exit(fork() == 0 ? (int)read(held[0], &byte, 1) : 0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);

	int fd = accept4(m.listener, NULL, NULL, SOCK_CLOEXEC);

	assert_false(peer_is_trusted(fd));
	close(fd);
	close(held[0]);
	close(held[1]);
	part(&m);
}

/* Which may not look into root's processes. */
static void root_is_trusted_by_an_ordinary_users_server(void **state)
{
	struct meeting m = meet();
	int status;

	(void)state;
	if (geteuid() != 0)
		skip();

	pid_t pid = fork();

	if (pid == 0) {
		int fd = -1;

		if (setgid(65534) == 0 && setuid(65534) == 0)
			fd = accept4(m.listener, NULL, NULL, SOCK_CLOEXEC);
		_exit(fd < 0 ? 2 : !peer_is_trusted(fd));
	}

	int fd = come(&m);

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd);
	part(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(our_own_socket_is_trusted),
		cmocka_unit_test(a_peer_that_has_closed_is_nobody),
		cmocka_unit_test(a_peer_that_only_stopped_sending_is_still_known),
		cmocka_unit_test(another_users_socket_is_not_trusted),
		cmocka_unit_test(a_unix_peer_is_who_connected),
		cmocka_unit_test(a_peer_in_another_user_namespace_is_not_trusted),
		cmocka_unit_test(a_peer_of_our_own_namespace_is_trusted),
		cmocka_unit_test(a_peer_that_connected_and_ended_is_not_trusted),
		cmocka_unit_test(root_is_trusted_by_an_ordinary_users_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
