#include "native_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/id.h"
#include "wire/place.h"

#define REGISTRY "/run/berth-uids"

bool as_user;
const char *disk;

void keeper_spawn(struct fixture *f, const char *fault)
{
	const char *program = getenv("BERTH_KEEPER");

	f->fault = fault;
	f->keeper = fork();
	if (f->keeper != 0)
		return;
	if (as_user && (setgid(65534) < 0 || setuid(65534) < 0))
		_exit(97);
	if (fault)
		setenv("BERTH_FAULT", fault, 1);
	execl(program ? program : TEST_KEEPER, "berth-keeper", "--dir", f->dir, "--relay",
	      relay_program(), "--idle-seconds", "30", "--allow-path", f->shared, (char *)NULL);
	_exit(98);
}

int socket_connect(int dir_fd, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.80s", dir_fd,
		 name);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

void keeper_greet(struct fixture *f)
{
	struct wire_keeper_hello hello = { .version = WIRE_VERSION,
					   .min_version = WIRE_MIN_VERSION };
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	int fd;

	for (;;) {
		assert_true(test_now_ms() < until);
		fd = socket_connect(f->dir_fd, KEEPER_SOCKET_NAME);
		if (fd >= 0) {
			peer_open_fd(&f->peer, fd);
			peer_say(&f->peer, 0, WIRE_KEEPER_HELLO, &hello);
			if (peer_next(&f->peer) == WIRE_KEEPER_WELCOME)
				return;
			peer_close(&f->peer);
		}
		/* A child of the one that was killed may have had its lock for a moment longer. */
		if (waitpid(f->keeper, NULL, WNOHANG) == f->keeper)
			keeper_spawn(f, f->fault);
		poll(NULL, 0, 5);
	}
}

size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t count = 0;

	while (dir && (entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return count;
}

/* Ranges that are registered for this keeper. */
size_t count_ranges(const struct fixture *f)
{
	DIR *dir = opendir(REGISTRY);
	struct dirent *entry;
	size_t count = 0;

	while (dir && (entry = readdir(dir))) {
		char owner[200];
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, owner, sizeof(owner) - 1);

		owner[n > 0 ? n : 0] = 0;
		count += strcmp(owner, f->dir) == 0;
	}
	if (dir)
		closedir(dir);
	return count;
}

void await_no_files(const struct fixture *f)
{
	static const char *const names[] = { "places", TRASH_NAME };
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[200];

		snprintf(path, sizeof(path), "%s/%s", f->dir, names[i]);
		while (count_entries(path) > 0) {
			assert_true(test_now_ms() < until);
			poll(NULL, 0, 5);
		}
	}
}

void make_directory(const char *path, mode_t mode)
{
	assert_int_equal(mkdir(path, mode), 0);
	assert_int_equal(chmod(path, mode), 0);
	if (as_user)
		assert_int_equal(chown(path, 65534, 65534), 0);
}

int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	snprintf(f->base, sizeof(f->base), "/tmp/berth-native-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	if (disk)
		assert_int_equal(mount("berth-test", f->base, "tmpfs", 0, disk), 0);
	assert_int_equal(chmod(f->base, 0755), 0);
	snprintf(f->data, sizeof(f->data), "%s/data", f->base);
	snprintf(f->dir, sizeof(f->dir), "%s/keeper", f->data);
	snprintf(f->shared, sizeof(f->shared), "%s/shared", f->base);
	make_directory(f->data, 0700);
	make_directory(f->dir, 0700);
	make_directory(f->shared, 0755);
	f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	random_bytes(f->key, sizeof(f->key));
	keeper_spawn(f, NULL);
	keeper_greet(f);
	*state = f;
	return 0;
}

void keeper_kill(struct fixture *f)
{
	peer_close(&f->peer);
	kill(f->keeper, SIGKILL);
	waitpid(f->keeper, NULL, 0);
}

uint32_t ask_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox)
{
	_cleanup_buf_ struct buf frame = { 0 };
	struct wire_place_make m = {
		.place_id = id,
		.kind = PLACE_NATIVE,
		.absence_ms = 60000,
		.label = "a label",
		.pool = f->pool,
	};

	assert_int_equal(wire_encode(&frame, 0, WIRE_SANDBOX, sandbox, NULL), 0);
	m.sandbox = (struct wire_bytes){ (const uint8_t *)frame.data, (uint32_t)frame.len };
	memcpy(m.key, f->key, sizeof(m.key));
	return peer_ask(&f->peer, WIRE_PLACE_MAKE, &m);
}

/* 0, or the code of the refusal, whose words are kept. */
uint32_t make_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox)
{
	uint32_t stream = ask_place(f, id, sandbox);

	if (peer_next_on(&f->peer, stream) == WIRE_ERROR) {
		snprintf(f->refusal, sizeof(f->refusal), "%s", f->peer.m.error.message);
		return f->peer.m.error.code;
	}
	assert_int_equal(f->peer.m.type, WIRE_PLACE_STATE);
	f->walls = f->peer.m.place_state.walls;
	f->relay = (pid_t)f->peer.m.place_state.pid;
	snprintf(f->cgroup, sizeof(f->cgroup), "%s",
		 f->peer.m.place_state.cgroup ? f->peer.m.place_state.cgroup : "");
	return 0;
}

/* One that must come about. */
void have_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox)
{
	if (make_place(f, id, sandbox) != 0)
		fail_msg("%s", f->refusal);
}

void enter(struct fixture *f, const char *id, struct peer *p)
{
	static uint64_t epoch;
	char name[100];
	struct hello hello;

	snprintf(name, sizeof(name), "places/%s/s", id);
	peer_open_fd(p, socket_connect(f->dir_fd, name));
	assert_true(p->conn.fd >= 0);
	assert_int_equal(hello_offer(&hello, id, ++epoch, 0, &p->conn.out, NULL), 0);
	peer_raw(p, NULL, 0);
	assert_int_equal(peer_next(p), WIRE_CHALLENGE);
	assert_int_equal(hello_answer(&hello, f->key, &p->frame, &p->conn.out, NULL), 0);
	peer_raw(p, NULL, 0);
	assert_int_equal(peer_next(p), WIRE_WELCOME);
}

uint32_t destroy(struct fixture *f, const char *id)
{
	return peer_call(&f->peer, WIRE_PLACE_DESTROY,
			 &(struct wire_place_destroy){ .place_id = id });
}

int tear_down(void **state)
{
	struct fixture *f = *state;

	if (f->keeper > 0) {
		uint32_t stream = peer_ask(&f->peer, WIRE_PLACE_LIST, &(struct wire_place_list){});
		char ids[16][65];
		unsigned count = 0;

		while (peer_next_on(&f->peer, stream) == WIRE_PLACE_STATE && count < 16)
			snprintf(ids[count++], 65, "%s", f->peer.m.place_state.place_id);
		while (count > 0)
			destroy(f, ids[--count]);
		peer_call(&f->peer, WIRE_STORE_REMOVE, &(struct wire_store_remove){ "kept" });
		peer_close(&f->peer);
		kill(f->keeper, SIGTERM);
		waitpid(f->keeper, NULL, 0);
	}
	/* Nothing is left, whatever the test was about. */
	await_no_files(f);
	assert_int_equal(count_ranges(f), 0);
	if (f->cgroup[0])
		assert_int_equal(access(f->cgroup, F_OK), -1);
	close(f->dir_fd);
	/* The kernel may still be busy with the mounts of a place that is gone. */
	if (disk)
		assert_int_equal(umount2(f->base, MNT_DETACH), 0);
	assert_int_equal(dir_remove_tree(AT_FDCWD, f->base, NULL), 0);
	free(f);
	return 0;
}

/* What a script in a place prints, and its exit status. Freed with the next. */
const char *run_in(struct fixture *f, const char *id, const char *script, int *status)
{
	static struct buf out;
	struct outcome o;
	struct peer p;

	enter(f, id, &p);
	outcome_run(&o, &p, script);
	buf_free(&out);
	out = (struct buf){ 0 };
	buf_append(&out, o.out.data ? o.out.data : "", o.out.len);
	buf_append(&out, o.err.data ? o.err.data : "", o.err.len);
	if (status)
		*status = o.error         ? -1
			  : o.exit.signal ? 128 + (int)o.exit.signal
					  : (int)o.exit.exit_code;
	outcome_free(&o);
	peer_close(&p);
	return buf_str(&out);
}

void has(const char *text, const char *wanted)
{
	if (!strstr(text, wanted))
		fail_msg("no \"%s\" in:\n%s", wanted, text);
}

void lacks(const char *text, const char *unwanted)
{
	if (strstr(text, unwanted))
		fail_msg("\"%s\" in:\n%s", unwanted, text);
}
