#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "../relay/client.h"
#include "base/fd.h"
#include "base/id.h"
#include "wire/place.h"
#include "wire/walls.h"

#define REGISTRY "/run/berth-uids"

/* As root everything also runs as an ordinary user. */
static bool as_user;

struct fixture {
	char base[64];    /* what the test may be shown or not */
	char data[80];    /* stands for the data directory */
	char dir[100];    /* the keeper's */
	char shared[100]; /* allowed to be mounted */
	int dir_fd;
	pid_t keeper;
	const char *fault; /* it was started with */
	uint32_t pool;     /* asked for with every place */
	struct peer peer;
	uint8_t key[HELLO_KEY_SIZE];
	uint64_t walls;
	pid_t relay;
	char cgroup[300];
	char refusal[600];
};

static void keeper_spawn(struct fixture *f, const char *fault)
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

static int socket_connect(int dir_fd, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void keeper_greet(struct fixture *f)
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

static size_t count_entries(const char *path)
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
static size_t count_ranges(const struct fixture *f)
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

static void make_directory(const char *path, mode_t mode)
{
	assert_int_equal(mkdir(path, mode), 0);
	assert_int_equal(chmod(path, mode), 0);
	if (as_user)
		assert_int_equal(chown(path, 65534, 65534), 0);
}

static int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	snprintf(f->base, sizeof(f->base), "/tmp/berth-native-XXXXXX");
	assert_non_null(mkdtemp(f->base));
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

/* 0, or the code of the refusal, whose words are kept. */
static uint32_t make_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox)
{
	_cleanup_buf_ struct buf frame = { 0 };
	struct wire_place_make m = {
		.place_id = id,
		.kind = PLACE_NATIVE,
		.absence_ms = 60000,
		.label = "a label",
		.pool = f->pool,
	};
	uint32_t stream;

	assert_int_equal(wire_encode(&frame, 0, WIRE_SANDBOX, sandbox, NULL), 0);
	m.sandbox = (struct wire_bytes){ (const uint8_t *)frame.data, (uint32_t)frame.len };
	memcpy(m.key, f->key, sizeof(m.key));
	stream = peer_ask(&f->peer, WIRE_PLACE_MAKE, &m);
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
static void have_place(struct fixture *f, const char *id, const struct wire_sandbox *sandbox)
{
	if (make_place(f, id, sandbox) != 0)
		fail_msg("%s", f->refusal);
}

static void enter(struct fixture *f, const char *id, struct peer *p)
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

static uint32_t destroy(struct fixture *f, const char *id)
{
	return peer_call(&f->peer, WIRE_PLACE_DESTROY,
			 &(struct wire_place_destroy){ .place_id = id });
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char path[200];

	if (f->keeper > 0) {
		uint32_t stream = peer_ask(&f->peer, WIRE_PLACE_LIST, &(struct wire_place_list){});
		char ids[16][65];
		unsigned count = 0;

		while (peer_next_on(&f->peer, stream) == WIRE_PLACE_STATE && count < 16)
			snprintf(ids[count++], 65, "%s", f->peer.m.place_state.place_id);
		while (count > 0)
			destroy(f, ids[--count]);
		peer_call(&f->peer, WIRE_STORE_REMOVE, &(struct wire_store_remove){ "kept" });
		assert_int_equal(
			peer_call(&f->peer, WIRE_KEEPER_SHUTDOWN, &(struct wire_keeper_shutdown){}),
			0);
		peer_close(&f->peer);
		waitpid(f->keeper, NULL, 0);
	}
	/* Nothing is left, whatever the test was about. */
	snprintf(path, sizeof(path), "%s/places", f->dir);
	assert_int_equal(count_entries(path), 0);
	assert_int_equal(count_ranges(f), 0);
	if (f->cgroup[0])
		assert_int_equal(access(f->cgroup, F_OK), -1);
	close(f->dir_fd);
	assert_int_equal(dir_remove_tree(AT_FDCWD, f->base, NULL), 0);
	free(f);
	return 0;
}

/* What a script in a place prints, and its exit status. Freed with the next. */
static const char *run_in(struct fixture *f, const char *id, const char *script, int *status)
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

static __attribute__((noinline)) void has(const char *text, const char *wanted)
{
	if (!strstr(text, wanted))
		fail_msg("no \"%s\" in:\n%s", wanted, text);
}

static __attribute__((noinline)) void lacks(const char *text, const char *unwanted)
{
	if (strstr(text, unwanted))
		fail_msg("\"%s\" in:\n%s", unwanted, text);
}

static const struct wire_sandbox plain;

#define NAMESPACES                                                                                 \
	(WALL_BIT(WALL_USER_NS) | WALL_BIT(WALL_MOUNT_NS) | WALL_BIT(WALL_PID_NS) |                \
	 WALL_BIT(WALL_IPC_NS) | WALL_BIT(WALL_UTS_NS) | WALL_BIT(WALL_CGROUP_NS) |                \
	 WALL_BIT(WALL_NET_NS))
#define ALWAYS                                                                                     \
	(NAMESPACES | WALL_BIT(WALL_NO_NEW_PRIVS) | WALL_BIT(WALL_NO_CAPS) |                       \
	 WALL_BIT(WALL_PROC_MASKED) | WALL_BIT(WALL_SYSTEM_READ_ONLY))

static void a_place_is_a_world_of_its_own(void **state)
{
	struct fixture *f = *state;
	const char *text;

	have_place(f, "one", &plain);
	assert_true((f->walls & ALWAYS) == ALWAYS);
	text = run_in(f, "one", "id -un; pwd; hostname; ls /; cat /proc/self/status", NULL);
	has(text, "agent\n/workspace\nberth\n");
	has(text, "CapPrm:\t0000000000000000");
	has(text, "CapBnd:\t0000000000000000");
	has(text, "NoNewPrivs:\t1");
	lacks(text, "sys\n");
	lacks(text, "mnt\n");
	text = run_in(f, "one", "ls -A /root /home /run /var; cat /etc/shadow; cat /proc/net/dev",
		      NULL);
	has(text, "/home:\nagent\n");
	has(text, "/etc/shadow: No such file");
	has(text, "lo:");
	lacks(text, "eth");
}

static void the_host_is_out_of_sight(void **state)
{
	struct fixture *f = *state;
	char script[400];
	const char *text;

	have_place(f, "one", &plain);
	snprintf(script, sizeof(script), "ls %s %s; ls /proc/%d; kill -0 %d; cat /proc/1/environ",
		 f->base, f->data, (int)getpid(), (int)getpid());
	text = run_in(f, "one", script, NULL);
	lacks(text, "keeper\n");
	lacks(text, "cmdline");
	has(text, "No such process");
}

static void nothing_of_the_system_can_be_changed(void **state)
{
	struct fixture *f = *state;
	int status;

	have_place(f, "one", &plain);
	run_in(f, "one",
	       "for x in /usr/bin/x /etc/x /x /proc/sys/kernel/hostname; do echo 1 > $x && exit 7; "
	       "done;"
	       " touch /workspace/x /home/agent/x /tmp/x /var/tmp/x /dev/shm/x",
	       &status);
	assert_int_equal(status, 0);
}

static void the_relay_cannot_be_reached_from_inside(void **state)
{
	struct fixture *f = *state;
	int status;
	const char *text;

	have_place(f, "one", &plain);
	text = run_in(
		f, "one",
		"kill -9 1; cat /proc/1/mem; ls /proc/1/fd; ls -l /proc/1/root; echo still here",
		&status);
	has(text, "still here");
	lacks(text, "root ->");
	text = run_in(f, "one", "ls -l /proc/self/fd", NULL);
	lacks(text, f->base);
	assert_true(process_lives(f->relay));
}

static void two_places_do_not_see_each_other(void **state)
{
	struct fixture *f = *state;
	const char *text;

	have_place(f, "one", &plain);
	have_place(f, "two", &plain);
	run_in(f, "one", "echo secret > /tmp/note; echo secret > /workspace/note", NULL);
	text = run_in(f, "two", "cat /tmp/note /workspace/note; ls /proc | grep -c '^[0-9]'", NULL);
	lacks(text, "secret");
}

static void what_is_not_allowed_is_not_mounted(void **state)
{
	struct fixture *f = *state;
	const char *of_etc[] = { "ro", "/etc", "/mnt/etc" };
	const char *of_data[] = { "ro", f->data, "/mnt/data" };
	const char *over_proc[] = { "ro", f->shared, "/proc/x" };
	char link[200];
	const char *by_link[] = { "ro", link, "/mnt/link" };

	snprintf(link, sizeof(link), "%s/link", f->shared);
	assert_int_equal(symlink("/etc", link), 0);
	assert_int_equal(make_place(f, "a", &(struct wire_sandbox){ .mounts = { of_etc, 3 } }),
			 WERR_INVALID);
	has(f->refusal, "--allow-path");
	assert_int_equal(make_place(f, "b", &(struct wire_sandbox){ .mounts = { of_data, 3 } }),
			 WERR_INVALID);
	assert_int_equal(make_place(f, "c", &(struct wire_sandbox){ .mounts = { by_link, 3 } }),
			 WERR_INVALID);
	assert_int_equal(make_place(f, "d", &(struct wire_sandbox){ .mounts = { over_proc, 3 } }),
			 WERR_INVALID);
	assert_int_equal(make_place(f, "e", &(struct wire_sandbox){ .root = "/" }), WERR_INVALID);
}

static void allowed_directories_are_mounted(void **state)
{
	struct fixture *f = *state;
	char tools[200], path[220];
	const char *mounts[] = { "ro", tools, "/opt/tools", "rw", f->shared, "/shared" };
	struct stat st;
	int status;

	snprintf(tools, sizeof(tools), "%s/tools", f->shared);
	make_directory(tools, 0755);
	if (!as_user)
		assert_int_equal(chown(f->shared, 1234, 1234), 0);
	have_place(f, "one", &(struct wire_sandbox){ .mounts = { mounts, 6 } });
	run_in(f, "one",
	       "set -e; echo hello > /shared/made; ! touch /opt/tools/x 2>/dev/null;"
	       " test \"$(stat -c %U /shared/made)\" = agent",
	       &status);
	assert_int_equal(status, 0);
	/* On the host it belongs to whom the directory belongs. */
	snprintf(path, sizeof(path), "%s/made", f->shared);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, as_user ? 65534 : 1234);
}

static void what_is_required_and_missing_refuses_the_place(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox wanted = { .require = WALL_BIT(WALL_MEMORY) | NAMESPACES };

	assert_int_equal(make_place(f, "one", &wanted), WERR_START);
	has(f->refusal, "limit_memory");
	lacks(f->refusal, "pid_namespace");
	wanted.require = ALWAYS;
	have_place(f, "two", &wanted);
}

static void limits_bite_or_are_refused(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox wanted = {
		.memory_bytes = 64 << 20, .pids = 24, .cpu_percent = 50, .open_files = 64
	};
	const uint64_t walls = WALL_BIT(WALL_MEMORY) | WALL_BIT(WALL_PIDS) | WALL_BIT(WALL_CPU) |
			       WALL_BIT(WALL_OPEN_FILES);
	struct outcome o;
	struct peer p;
	int status;

	if (as_user) {
		assert_int_equal(make_place(f, "one", &wanted), WERR_INVALID);
		has(f->refusal, "controller");
		return;
	}
	have_place(f, "one", &wanted);
	assert_true((f->walls & walls) == walls);
	assert_non_null(strstr(run_in(f, "one", "ulimit -n", NULL), "64"));
	has(run_in(f, "one", "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; wait",
		   &status),
	    "fork");
	enter(f, "one", &p);
	outcome_run(&o, &p, "exec python3 -c 'x = bytearray(300 << 20); print(len(x))'");
	assert_int_equal(o.exit.signal, SIGKILL);
	assert_int_equal(o.exit.reason, REASON_OOM);
	assert_int_equal(o.out.len, 0);
	outcome_free(&o);
	peer_close(&p);
	/* Nobody but the hog: the place is as before. */
	has(run_in(f, "one", "echo fine", NULL), "fine");
}

static void a_tmpfs_is_as_large_as_it_may_be(void **state)
{
	struct fixture *f = *state;
	int status;

	assert_int_equal(make_place(f, "disk", &(struct wire_sandbox){ .disk_bytes = 4 << 20 }),
			 WERR_INVALID);
	have_place(f, "one", &(struct wire_sandbox){ .tmpfs = 1, .disk_bytes = 4 << 20 });
	assert_true(f->walls & WALL_BIT(WALL_DISK));
	has(run_in(f, "one", "head -c 8000000 /dev/zero > /workspace/big", &status),
	    "No space left");
	assert_int_not_equal(status, 0);
}

static void root_of_a_place_changes_only_its_own_view(void **state)
{
	struct fixture *f = *state;
	int status;

	if (as_user) {
		assert_int_equal(make_place(f, "one", &(struct wire_sandbox){ .user = "root" }),
				 WERR_INVALID);
		return;
	}
	have_place(f, "one", &(struct wire_sandbox){ .user = "root" });
	assert_false(f->walls & WALL_BIT(WALL_SYSTEM_READ_ONLY));
	run_in(f, "one",
	       "set -e; test $(id -u) = 0; echo x > /usr/bin/berth-test-file; rm /usr/bin/env;"
	       " echo y >> /etc/passwd; ! mount -t tmpfs none /tmp 2>/dev/null",
	       &status);
	assert_int_equal(status, 0);
	assert_int_equal(access("/usr/bin/berth-test-file", F_OK), -1);
	assert_int_equal(access("/usr/bin/env", F_OK), 0);
}

static void files_in_a_store_outlive_the_place(void **state)
{
	struct fixture *f = *state;
	struct wire_sandbox wanted = { .store = "kept" };

	have_place(f, "one", &wanted);
	run_in(f, "one", "echo before > /workspace/note", NULL);
	assert_int_not_equal(make_place(f, "two", &wanted), 0);
	assert_int_equal(
		peer_call(&f->peer, WIRE_STORE_REMOVE, &(struct wire_store_remove){ "kept" }),
		WERR_BUSY);
	assert_int_equal(destroy(f, "one"), 0);
	have_place(f, "two", &wanted);
	has(run_in(f, "two", "cat /workspace/note", NULL), "before");
	assert_int_equal(destroy(f, "two"), 0);
	assert_int_equal(
		peer_call(&f->peer, WIRE_STORE_REMOVE, &(struct wire_store_remove){ "kept" }), 0);
	have_place(f, "three", &wanted);
	lacks(run_in(f, "three", "cat /workspace/note", NULL), "before\n");
}

static void the_end_of_the_relay_is_the_end_of_all(void **state)
{
	struct fixture *f = *state;
	struct wire_exec_start start = SHELL("setsid sleep 1000 & echo ready; sleep 1000");
	struct outcome o;
	struct peer p;
	pid_t relay;

	have_place(f, "one", &plain);
	relay = f->relay;
	enter(f, "one", &p);
	outcome_start(&o, &p, &start);
	outcome_wait_text(&o, &p, "ready");
	kill(relay, SIGKILL);
	assert_true(process_is_gone_soon(relay));
	assert_int_equal(destroy(f, "one"), 0);
	outcome_free(&o);
	peer_close(&p);
}

static void kill_keeper(struct fixture *f)
{
	peer_close(&f->peer);
	kill(f->keeper, SIGKILL);
	waitpid(f->keeper, NULL, 0);
}

static void a_place_outlives_its_keeper_and_the_next_one_ends_it(void **state)
{
	struct fixture *f = *state;

	have_place(f, "one", &plain);
	kill_keeper(f);
	has(run_in(f, "one", "echo alive", NULL), "alive");
	keeper_spawn(f, NULL);
	keeper_greet(f);
	assert_true(process_lives(f->relay));
	have_place(f, "one", &plain);
	assert_true((f->walls & ALWAYS) == ALWAYS);
	assert_int_equal(destroy(f, "one"), 0);
	assert_false(process_lives(f->relay));
}

static void a_keeper_killed_while_making_leaves_nothing(void **state)
{
	static const char *const points[] = { "keeper.make.recipe-written:kill",
					      "keeper.make.started:kill" };
	struct fixture *f = *state;
	char path[200];

	snprintf(path, sizeof(path), "%s/places", f->dir);
	for (size_t i = 0; i < 2; i++) {
		_cleanup_buf_ struct buf frame = { 0 };
		struct wire_place_make m = { .place_id = "half",
					     .kind = PLACE_NATIVE,
					     .absence_ms = 60000 };
		int64_t until = test_now_ms() + CLIENT_WAIT_MS;

		kill_keeper(f);
		keeper_spawn(f, points[i]);
		keeper_greet(f);
		assert_int_equal(wire_encode(&frame, 0, WIRE_SANDBOX, &plain, NULL), 0);
		m.sandbox = (struct wire_bytes){ (const uint8_t *)frame.data, (uint32_t)frame.len };
		peer_ask(&f->peer, WIRE_PLACE_MAKE, &m);
		waitpid(f->keeper, NULL, 0);
		peer_close(&f->peer);
		assert_int_equal(count_entries(path), 1);
		keeper_spawn(f, NULL);
		keeper_greet(f);
		while (count_entries(path) > 0) {
			assert_true(test_now_ms() < until);
			poll(NULL, 0, 5);
		}
	}
}

#define POOL 2

/* Relays of places that are kept ready, when there are as many as that. */
static void await_pool(struct fixture *f, unsigned wanted, pid_t pids[POOL])
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	unsigned found;

	do {
		uint32_t stream = peer_ask(&f->peer, WIRE_PLACE_LIST, &(struct wire_place_list){});

		assert_true(test_now_ms() < until);
		poll(NULL, 0, 5);
		found = 0;
		while (peer_next_on(&f->peer, stream) == WIRE_PLACE_STATE)
			if (f->peer.m.place_state.pool == 2 && found < POOL)
				pids[found++] = (pid_t)f->peer.m.place_state.pid;
	} while (found != wanted);
}

static void await_entries(struct fixture *f, size_t wanted)
{
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	char path[200];

	snprintf(path, sizeof(path), "%s/places", f->dir);
	while (count_entries(path) != wanted) {
		assert_true(test_now_ms() < until);
		poll(NULL, 0, 5);
	}
}

static void prepared_places_are_taken_and_replaced(void **state)
{
	struct fixture *f = *state;
	const struct wire_sandbox other = { .tmpfs = 1 };
	pid_t pids[POOL], later[POOL];

	f->pool = POOL;
	have_place(f, "one", &plain);
	await_pool(f, POOL, pids);
	have_place(f, "two", &plain);
	assert_true(f->relay == pids[0] || f->relay == pids[1]);
	assert_true((f->walls & ALWAYS) == ALWAYS);
	has(run_in(f, "two", "echo $BERTH_PLACE_ID; echo mine >/tmp/note; id -un", NULL),
	    "two\nagent\n");
	await_pool(f, POOL, later);
	assert_false(later[0] == f->relay || later[1] == f->relay);
	/* Not for somebody who wants another kind, or none from the pool. */
	f->pool = 0;
	have_place(f, "three", &other);
	assert_false(f->relay == later[0] || f->relay == later[1]);
	have_place(f, "four", &plain);
	assert_false(f->relay == later[0] || f->relay == later[1]);
	lacks(run_in(f, "four", "cat /tmp/note", NULL), "mine");
	/* As a place like any other it goes. */
	assert_int_equal(destroy(f, "two"), 0);
	await_pool(f, POOL, later);
}

static void a_keeper_that_stops_leaves_nothing_prepared(void **state)
{
	struct fixture *f = *state;
	pid_t pids[POOL];

	f->pool = POOL;
	have_place(f, "one", &plain);
	await_pool(f, POOL, pids);
	peer_close(&f->peer);
	kill(f->keeper, SIGTERM);
	waitpid(f->keeper, NULL, 0);
	await_entries(f, 1);
	for (int i = 0; i < POOL; i++)
		assert_false(process_lives(pids[i]));
	assert_true(process_lives(f->relay));
	keeper_spawn(f, NULL);
	keeper_greet(f);
}

static void a_keeper_killed_while_taking_leaves_nothing_prepared(void **state)
{
	static const char *const points[] = { "keeper.pool.renamed:kill",
					      "keeper.pool.configured:kill" };
	struct fixture *f = *state;

	f->pool = POOL;
	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		struct wire_place_make m = {
			.place_id = "half", .kind = PLACE_NATIVE, .absence_ms = 60000, .pool = POOL
		};
		_cleanup_buf_ struct buf frame = { 0 };
		pid_t pids[POOL];

		kill_keeper(f);
		keeper_spawn(f, points[i]);
		keeper_greet(f);
		have_place(f, "one", &plain);
		await_pool(f, POOL, pids);
		assert_int_equal(wire_encode(&frame, 0, WIRE_SANDBOX, &plain, NULL), 0);
		m.sandbox = (struct wire_bytes){ (const uint8_t *)frame.data, (uint32_t)frame.len };
		peer_ask(&f->peer, WIRE_PLACE_MAKE, &m);
		waitpid(f->keeper, NULL, 0);
		peer_close(&f->peer);
		keeper_spawn(f, NULL);
		keeper_greet(f);
		await_entries(f, 1);
		for (int k = 0; k < POOL; k++)
			assert_false(process_lives(pids[k]));
		assert_int_equal(destroy(f, "one"), 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_place_is_a_world_of_its_own),
		TEST(the_host_is_out_of_sight),
		TEST(nothing_of_the_system_can_be_changed),
		TEST(the_relay_cannot_be_reached_from_inside),
		TEST(two_places_do_not_see_each_other),
		TEST(what_is_not_allowed_is_not_mounted),
		TEST(allowed_directories_are_mounted),
		TEST(what_is_required_and_missing_refuses_the_place),
		TEST(limits_bite_or_are_refused),
		TEST(a_tmpfs_is_as_large_as_it_may_be),
		TEST(root_of_a_place_changes_only_its_own_view),
		TEST(files_in_a_store_outlive_the_place),
		TEST(the_end_of_the_relay_is_the_end_of_all),
		TEST(a_place_outlives_its_keeper_and_the_next_one_ends_it),
		TEST(a_keeper_killed_while_making_leaves_nothing),
		TEST(prepared_places_are_taken_and_replaced),
		TEST(a_keeper_that_stops_leaves_nothing_prepared),
		TEST(a_keeper_killed_while_taking_leaves_nothing_prepared),
	};
	int failed = cmocka_run_group_tests_name("native", tests, NULL, NULL);

	if (geteuid() == 0) {
		as_user = true;
		failed += cmocka_run_group_tests_name("native as an ordinary user", tests, NULL,
						      NULL);
	}
	return failed;
}
