#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
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
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "native_fixture.h"
#include "base/fd.h"
#include "base/id.h"
#include "wire/place.h"
#include "wire/walls.h"

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

/* A server of this release says with each request where its paths may lead. */
static void a_path_that_leads_beyond_its_bounds_is_not_mounted(void **state)
{
	struct fixture *f = *state;
	const char *outside[] = { "ro", "/usr/share", "/mnt/x" };
	const char *of_link[] = { "ro", NULL, "/mnt/x" };
	const char *anywhere[] = { "/" }, *shared[] = { f->shared };
	const char *two[] = { f->shared, f->shared };
	char link[200];

	snprintf(link, sizeof(link), "%s/link", f->shared);
	assert_int_equal(symlink("/usr/share", link), 0);
	of_link[1] = link;
	assert_int_equal(make_place(f, "a",
				    &(struct wire_sandbox){ .mounts = { outside, 3 },
							    .within = { shared, 1 } }),
			 WERR_INVALID);
	has(f->refusal, "is not below");
	assert_int_equal(make_place(f, "b",
				    &(struct wire_sandbox){ .mounts = { of_link, 3 },
							    .within = { shared, 1 } }),
			 WERR_INVALID);
	has(f->refusal, "is really /usr/share");
	assert_int_equal(make_place(f, "c",
				    &(struct wire_sandbox){ .mounts = { outside, 3 },
							    .within = { two, 2 } }),
			 WERR_INVALID);
	has(f->refusal, "bounds");
	/* Though the list this keeper was started with has no such directory. */
	have_place(f, "d",
		   &(struct wire_sandbox){ .mounts = { outside, 3 }, .within = { anywhere, 1 } });
	has(run_in(f, "d", "ls /mnt/x", NULL), "doc");
}

static void what_no_place_may_have_is_refused_whoever_asks(void **state)
{
	struct fixture *f = *state;
	const char *const sources[] = {
		"/", "/proc", "/sys/kernel", "/dev/null", f->data, f->base
	};
	const char *anywhere[] = { "/" };

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		const char *mount[] = { "ro", sources[i], "/mnt/x" };

		assert_int_equal(make_place(f, "one",
					    &(struct wire_sandbox){ .mounts = { mount, 3 },
								    .within = { anywhere, 1 } }),
				 WERR_INVALID);
	}
	assert_int_equal(
		make_place(f, "one",
			   &(struct wire_sandbox){ .root = "/", .within = { anywhere, 1 } }),
		WERR_INVALID);
}

/* A server of the release before says nothing: then the list of the keeper's start counts. */
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

/* Unless they are required. */
static void limits_that_nobody_asked_for_fall_away_where_there_is_no_way(void **state)
{
	struct fixture *f = *state;
	const uint64_t walls = WALL_BIT(WALL_MEMORY) | WALL_BIT(WALL_PIDS);
	struct wire_sandbox wanted = { .memory_bytes = 64 << 20,
				       .pids = 24,
				       .soft_limits = WIRE_SOFT_MEMORY | WIRE_SOFT_PIDS };

	have_place(f, "one", &wanted);
	assert_int_equal(f->walls & walls, as_user ? 0 : walls);
	wanted.require = walls;
	if (as_user)
		assert_int_equal(make_place(f, "two", &wanted), WERR_START);
	else
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

static void a_place_outlives_its_keeper_and_the_next_one_ends_it(void **state)
{
	struct fixture *f = *state;

	have_place(f, "one", &plain);
	keeper_kill(f);
	has(run_in(f, "one", "echo alive", NULL), "alive");
	keeper_spawn(f, NULL);
	keeper_greet(f);
	assert_true(process_lives(f->relay));
	have_place(f, "one", &plain);
	assert_true((f->walls & ALWAYS) == ALWAYS);
	assert_int_equal(destroy(f, "one"), 0);
	assert_false(process_lives(f->relay));
}

static void a_place_keeps_its_etc_whatever_the_next_keeper_makes(void **state)
{
	static const char look[] = "id -un; ls /etc/ssl/certs | wc -l";
	struct fixture *f = *state;
	char before[200];

	have_place(f, "one", &plain);
	snprintf(before, sizeof(before), "%s", run_in(f, "one", look, NULL));
	keeper_kill(f);
	keeper_spawn(f, NULL);
	keeper_greet(f);
	have_place(f, "two", &plain);
	assert_string_equal(run_in(f, "one", look, NULL), before);
	assert_string_equal(run_in(f, "two", look, NULL), before);
}

static void a_keeper_killed_while_making_leaves_nothing(void **state)
{
	static const char *const points[] = { "keeper.make.recipe-written:kill",
					      "keeper.make.started:kill" };
	struct fixture *f = *state;
	char path[200];

	snprintf(path, sizeof(path), "%s/places", f->dir);
	for (size_t i = 0; i < 2; i++) {
		int64_t begin = test_now_ms();
		bool asked = false;

		keeper_kill(f);
		keeper_spawn(f, points[i]);
		keeper_greet(f);
		ask_place(f, "half", &plain);
		waitpid(f->keeper, NULL, 0);
		peer_close(&f->peer);
		assert_int_equal(count_entries(path), 1);
		keeper_spawn(f, NULL);
		keeper_greet(f);
		while (count_entries(path) > 0) {
			assert_true(test_now_ms() < begin + CLIENT_WAIT_MS);
			poll(NULL, 0, 5);
			/*
			 * A relay that was still dying was taken for one that lives: its place is
			 * the server's to end, as any that nobody holds.
			 */
			if (!asked && test_now_ms() > begin + 2000) {
				asked = true;
				assert_int_equal(destroy(f, "half"), 0);
			}
		}
	}
}

/* Refuses calls of one or two numbers: enough to tell parts of a filter apart. */
struct refusals {
	struct sock_filter code[6];
};
#define REFUSE(first, second)                                                                      \
	{                                                                                          \
		{                                                                                  \
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),                                     \
				BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 2, 0),                  \
				BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 1, 0),                 \
				BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                      \
				BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),              \
				BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),              \
		}                                                                                  \
	}
static const struct refusals both = REFUSE(SYS_symlinkat, SYS_linkat),
			     symlinks = REFUSE(SYS_symlinkat, SYS_symlinkat),
			     links = REFUSE(SYS_linkat, SYS_linkat);
#define PROGRAM(p)                                                                                 \
	{                                                                                          \
		(const uint8_t *)(p).code, sizeof((p).code)                                        \
	}

static unsigned filters_of(pid_t pid)
{
	_cleanup_buf_ struct buf text = { 0 };
	char path[64];
	const char *line;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	assert_int_equal(file_read(AT_FDCWD, path, &text, 8192, NULL), 0);
	line = strstr(buf_str(&text), "Seccomp_filters:");
	return line ? (unsigned)strtoul(line + strlen("Seccomp_filters:"), NULL, 10) : 0;
}

static const char TRY_LINKS[] = "cd /tmp; touch file; ln -s file soft; ln file hard; ls;"
				" grep Seccomp_filters /proc/self/status";

/* Servers and keepers of two versions meet in both ways: a payload never has less than the whole.
 */
static void every_server_gets_its_whole_filter(void **state)
{
	struct fixture *f = *state;
	/* One that knows no parts, and one that does. */
	const struct wire_sandbox older = { .seccomp = PROGRAM(both) };
	const struct wire_sandbox newer = { .seccomp = PROGRAM(both),
					    .seccomp_base = PROGRAM(symlinks),
					    .seccomp_exec = PROGRAM(links) };
	unsigned outside = filters_of(getpid());
	const struct wire_sandbox *servers[] = { &older, &newer };
	static const char *const ids[] = { "older", "newer" };

	for (unsigned i = 0; i < ARRAY_SIZE(servers); i++) {
		char count[40];
		const char *text;

		have_place(f, ids[i], servers[i]);
		assert_true(f->walls & WALL_BIT(WALL_SECCOMP));
		assert_int_equal(filters_of(f->relay), outside + i);
		text = run_in(f, ids[i], TRY_LINKS, NULL);
		has(text, "symbolic link 'soft': Invalid cross-device link");
		has(text, "hard link 'hard' => 'file': Invalid cross-device link");
		snprintf(count, sizeof(count), "file\nSeccomp_filters:\t%u\n", outside + i + 1);
		has(text, count);
	}
}

static void half_a_filter_is_refused(void **state)
{
	struct fixture *f = *state;
	const struct wire_sandbox wanted[] = {
		{ .seccomp = PROGRAM(both), .seccomp_base = PROGRAM(symlinks) },
		{ .seccomp = PROGRAM(both), .seccomp_exec = PROGRAM(links) },
		{ .seccomp = PROGRAM(both),
		  .seccomp_base = { (const uint8_t *)"1234567", 7 },
		  .seccomp_exec = PROGRAM(links) },
		/* The kernel would not have it. */
		{ .seccomp = PROGRAM(both),
		  .seccomp_base = { (const uint8_t *)"12345678", 8 },
		  .seccomp_exec = PROGRAM(links) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		assert_int_not_equal(make_place(f, "half", &wanted[i]), 0);
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

static void prepared_places_have_the_whole_filter(void **state)
{
	struct fixture *f = *state;
	const struct wire_sandbox newer = { .seccomp = PROGRAM(both),
					    .seccomp_base = PROGRAM(symlinks),
					    .seccomp_exec = PROGRAM(links) };
	pid_t pids[POOL];
	const char *text;

	f->pool = POOL;
	have_place(f, "one", &newer);
	await_pool(f, POOL, pids);
	have_place(f, "two", &newer);
	assert_true(f->relay == pids[0] || f->relay == pids[1]);
	text = run_in(f, "two", TRY_LINKS, NULL);
	has(text, "symbolic link 'soft': Invalid cross-device link");
	has(text, "hard link 'hard' => 'file': Invalid cross-device link");
}

static bool has_open(pid_t pid, const char *ending)
{
	char path[64], target[400];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = 0;
		found = n >= (ssize_t)strlen(ending) &&
			!strcmp(target + n - strlen(ending), ending);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Who takes it does not wait for what could be done before. */
static void a_prepared_place_is_ready_for_its_first_exec(void **state)
{
	struct fixture *f = *state;
	int64_t until = test_now_ms() + CLIENT_WAIT_MS;
	pid_t pids[POOL];
	char path[400];

	f->pool = POOL;
	have_place(f, "one", &plain);
	assert_false(has_open(f->relay, "/e1"));
	await_pool(f, POOL, pids);
	/* Only cgroups are made for execs; an ordinary user has none to make them in. */
	if (!f->cgroup[0])
		return;
	while (!has_open(pids[0], "/e1") || !has_open(pids[1], "/e1")) {
		assert_true(test_now_ms() < until);
		poll(NULL, 0, 5);
	}
	have_place(f, "two", &plain);
	assert_true(f->relay == pids[0] || f->relay == pids[1]);
	has(run_in(f, "two", "cat /proc/self/cgroup", NULL), "/e1\n");
	snprintf(path, sizeof(path), "%s/e2", f->cgroup);
	assert_int_equal(access(path, F_OK), -1);
	await_pool(f, POOL, pids);
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
	static const char *const points[] = { "keeper.pool.taken:kill",
					      "keeper.pool.configured:kill",
					      "keeper.pool.renamed:kill" };
	struct fixture *f = *state;

	f->pool = POOL;
	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		pid_t pids[POOL];

		keeper_kill(f);
		keeper_spawn(f, points[i]);
		keeper_greet(f);
		have_place(f, "one", &plain);
		await_pool(f, POOL, pids);
		ask_place(f, "half", &plain);
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

/* The network namespace of a place that lives as long as the script takes. */
static void network_of(struct fixture *f, const char *script, char out[64])
{
	char whole[300];
	const char *text;

	have_place(f, "one", &plain);
	snprintf(whole, sizeof(whole), "readlink /proc/self/ns/net; %s", script);
	text = run_in(f, "one", whole, NULL);
	has(text, "net:[");
	snprintf(out, 64, "%.*s", (int)strcspn(text, "\n"), text);
	assert_int_equal(destroy(f, "one"), 0);
}

static void a_network_is_used_again_only_if_nobody_used_it(void **state)
{
	/* A packet to itself; one that had nowhere to go. */
	static const char *const uses[] = {
		"bash -c ': </dev/tcp/127.0.0.1/9' 2>/dev/null",
		"bash -c ': >/dev/udp/203.0.113.1/9' 2>/dev/null",
	};
	struct fixture *f = *state;
	char before[64], after[64];

	network_of(f, "python3 -c 'import socket; socket.socket().bind((\"\", 7))' 2>/dev/null",
		   before);
	network_of(f, "true", after);
	/* An ordinary user cannot give one on. */
	assert_int_equal(strcmp(before, after) == 0, !as_user);
	for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
		network_of(f, uses[i], before);
		network_of(f, "true", after);
		assert_string_not_equal(before, after);
	}
}

static void who_waits_at_a_place_is_not_heard_by_the_next(void **state)
{
	struct fixture *f = *state;
	struct pollfd waiting = { .events = POLLIN };
	char byte;

	have_place(f, "one", &plain);
	/* So that it is not heard here. */
	assert_int_equal(kill(f->relay, SIGSTOP), 0);
	waiting.fd = socket_connect(f->dir_fd, "places/one/s");
	assert_true(waiting.fd >= 0);
	assert_int_equal(destroy(f, "one"), 0);
	have_place(f, "two", &plain);
	has(run_in(f, "two", "echo well", NULL), "well");
	assert_int_equal(poll(&waiting, 1, CLIENT_WAIT_MS), 1);
	assert_true(read(waiting.fd, &byte, 1) <= 0);
	close(waiting.fd);
}

/*
 * On its way to being its program a command has the payload's user already, and stops for a signal
 * of that user. The relay must not wait for it without end.
 */
static void a_payload_that_stops_everything_does_not_stop_its_relay(void **state)
{
	struct fixture *f = *state;
	struct outcome stopper = { 0 };
	struct peer p;

	have_place(f, "one", &(struct wire_sandbox){ 0 });
	enter(f, "one", &p);

	struct wire_exec_start start = SHELL("echo begun; while :; do kill -STOP -1; done");

	exec_id_new(start.exec_id);
	outcome_start(&stopper, &p, &start);
	outcome_wait_text(&stopper, &p, "begun");
	for (int i = 0; i < (as_user ? 6 : 30); i++) {
		struct outcome o = { 0 };
		struct wire_exec_start next = SHELL("true");

		/* Ended at once by its deadline, should it have been stopped later. */
		exec_id_new(next.exec_id);
		next.deadline_ms = 100;
		outcome_start(&o, &p, &next);
		/* Of an ordinary user the shim that ends it may be stopped as well. */
		if (!as_user)
			outcome_wait(&o, &p);
		assert_true(o.exited || o.error == WERR_START || (as_user && o.pid != 0));
		outcome_free(&o);
	}
	peer_say(&p, 0, WIRE_PING, &(struct wire_ping){ .token = 7 });
	while (peer_next(&p) != WIRE_PONG)
		assert_int_not_equal(p.frame.type, 0);
	outcome_free(&stopper);
	peer_close(&p);
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
		TEST(a_path_that_leads_beyond_its_bounds_is_not_mounted),
		TEST(what_no_place_may_have_is_refused_whoever_asks),
		TEST(allowed_directories_are_mounted),
		TEST(what_is_required_and_missing_refuses_the_place),
		TEST(limits_that_nobody_asked_for_fall_away_where_there_is_no_way),
		TEST(limits_bite_or_are_refused),
		TEST(a_tmpfs_is_as_large_as_it_may_be),
		TEST(root_of_a_place_changes_only_its_own_view),
		TEST(files_in_a_store_outlive_the_place),
		TEST(the_end_of_the_relay_is_the_end_of_all),
		TEST(a_place_outlives_its_keeper_and_the_next_one_ends_it),
		TEST(a_place_keeps_its_etc_whatever_the_next_keeper_makes),
		TEST(a_keeper_killed_while_making_leaves_nothing),
		TEST(every_server_gets_its_whole_filter),
		TEST(half_a_filter_is_refused),
		TEST(prepared_places_are_taken_and_replaced),
		TEST(prepared_places_have_the_whole_filter),
		TEST(a_prepared_place_is_ready_for_its_first_exec),
		TEST(a_keeper_that_stops_leaves_nothing_prepared),
		TEST(a_keeper_killed_while_taking_leaves_nothing_prepared),
		TEST(a_network_is_used_again_only_if_nobody_used_it),
		TEST(who_waits_at_a_place_is_not_heard_by_the_next),
		TEST(a_payload_that_stops_everything_does_not_stop_its_relay),
	};
	int failed = cmocka_run_group_tests_name("native", tests, NULL, NULL);

	if (geteuid() == 0) {
		as_user = true;
		failed += cmocka_run_group_tests_name("native as an ordinary user", tests, NULL,
						      NULL);
	}
	return failed;
}
