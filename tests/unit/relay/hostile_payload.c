/*
 * A command that attacks its own relay: from another user than the relay's, and from the same one,
 * where only SIGKILL and SIGSTOP are beyond the relay's power. This program is the attacker as
 * well, when it is started with a verb.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "client.h"
#include "wire/place.h"

#define NOBODY 65534
#define HOG_PROCESSES 200
#define HOG_BYTES ((size_t)96 << 20)

/* ---- the attacker ---- */

static void report(const char *what, bool open)
{
	printf("%s %s\n", open ? "OPEN" : "shut", what);
}

static void pry_files(pid_t victim)
{
	static const struct {
		const char *name;
		int flags;
	} files[] = {
		{ "mem", O_RDONLY },         { "mem", O_RDWR },       { "environ", O_RDONLY },
		{ "maps", O_RDONLY },        { "auxv", O_RDONLY },    { "fd/3", O_RDONLY },
		{ "fd/5", O_RDONLY },        { "fd/6", O_RDONLY },    { "cwd/.", O_RDONLY },
		{ "exe", O_RDONLY },         { "syscall", O_RDONLY }, { "stack", O_RDONLY },
		{ "oom_score_adj", O_RDWR },
	};
	char path[64], link[256];
	DIR *dir;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)victim, files[i].name);
		fd = open(path, files[i].flags | O_CLOEXEC);
		report(path, fd >= 0);
		if (fd >= 0)
			close(fd);
	}
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)victim);
	dir = opendir(path);
	report(path, dir != NULL);
	if (dir)
		closedir(dir);
	snprintf(path, sizeof(path), "/proc/%d/root", (int)victim);
	report(path, readlink(path, link, sizeof(link)) >= 0);
}

static void pry_memory(pid_t victim)
{
	char taken[16];
	struct iovec here = { taken, sizeof(taken) };
	struct iovec there = { (void *)(uintptr_t)0x400000, sizeof(taken) };
	bool open;

	open = ptrace(PTRACE_ATTACH, victim, NULL, NULL) == 0;
	report("PTRACE_ATTACH", open);
	open = ptrace(PTRACE_SEIZE, victim, NULL, NULL) == 0;
	report("PTRACE_SEIZE", open);
	/* A bad address would be EFAULT, after the question whether we may. */
	open = process_vm_readv(victim, &here, 1, &there, 1, 0) >= 0 || errno != EPERM;
	report("process_vm_readv", open);
	open = process_vm_writev(victim, &here, 1, &there, 1, 0) >= 0 || errno != EPERM;
	report("process_vm_writev", open);
}

static void pry_descriptors(pid_t victim)
{
	int pidfd = (int)syscall(SYS_pidfd_open, victim, 0);

	for (int fd = RELAY_FD_LISTEN; fd < RELAY_FD_END; fd++) {
		int stolen = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);

		report("pidfd_getfd", stolen >= 0);
		if (stolen >= 0)
			close(stolen);
	}
}

static int pry(pid_t victim)
{
	pry_files(victim);
	pry_memory(victim);
	pry_descriptors(victim);
	puts("done");
	return 0;
}

/* Everything but the two that nobody can refuse from his own user. */
static int shower(pid_t victim)
{
	for (int signal = 1; signal <= 64; signal++)
		if (signal != SIGKILL && signal != SIGSTOP)
			kill(victim, signal);
	report("kill", kill(victim, 0) == 0);
	puts("done");
	return 0;
}

static _Noreturn int hold(void)
{
	puts("full");
	fflush(stdout);
	for (;;)
		pause();
}

/* The machine's own limit is not ours to run into. */
static int hog_processes(rlim_t most)
{
	struct rlimit limit = { most, most };
	int made = 0;

	if (setrlimit(RLIMIT_NPROC, &limit) < 0)
		return 1;
	for (;;) {
		pid_t pid = fork();

		if (pid == 0)
			for (;;)
				pause();
		if (pid < 0)
			break;
		made++;
	}
	printf("%d %s\n", made, errno == EAGAIN ? "EAGAIN" : strerror(errno));
	return hold();
}

static int hog_descriptors(void)
{
	int fds[2];

	while (pipe(fds) == 0)
		;
	printf("%s\n", errno == EMFILE ? "EMFILE" : strerror(errno));
	return hold();
}

/* Never the same process for longer than a fork takes. */
static int run_away(void)
{
	signal(SIGTERM, SIG_IGN);
	if (fork() != 0)
		return hold();
	setsid();
	close(1);
	close(2);
	for (;;)
		if (fork() > 0)
			_exit(0);
}

static int hog_memory(void)
{
	char *memory =
		mmap(NULL, HOG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return 1;
	memset(memory, 1, HOG_BYTES);
	return hold();
}

static int hog_spool(void)
{
	static char flood[64 << 10];

	memset(flood, 'x', sizeof(flood));
	for (;;)
		if (write(1, flood, sizeof(flood)) < 0)
			return 1;
}

static int attack(char **argv)
{
	pid_t victim = !argv[2]                         ? 0
		       : strcmp(argv[2], "parent") == 0 ? getppid()
							: (pid_t)strtol(argv[2], NULL, 10);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(argv[1], "pry") == 0)
		return pry(victim);
	if (strcmp(argv[1], "shower") == 0)
		return shower(victim);
	if (strcmp(argv[1], "processes") == 0)
		return hog_processes((rlim_t)victim);
	if (strcmp(argv[1], "descriptors") == 0)
		return hog_descriptors();
	if (strcmp(argv[1], "run-away") == 0)
		return run_away();
	if (strcmp(argv[1], "memory") == 0)
		return hog_memory();
	return hog_spool();
}

/* ---- the tests ---- */

struct fixture {
	struct rig rig;
	struct peer peer;
	struct outcome bystander;
	char attacker[120];
	char relay_pid[16];
	uint64_t epoch;
};

static bool use_shim;

/* Into the place, where every user can run it. */
static void place_attacker(struct fixture *f)
{
	_cleanup_close_ int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int to = -1;
	struct stat st;
	off_t at = 0;

	snprintf(f->attacker, sizeof(f->attacker), "%s/attacker", f->rig.root);
	to = open(f->attacker, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_true(from >= 0 && to >= 0 && fstat(from, &st) == 0);
	while (at < st.st_size)
		assert_true(sendfile(to, from, &at, (size_t)(st.st_size - at)) > 0);
	assert_int_equal(fchmod(to, 0755), 0);
}

static int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	struct wire_exec_start start = SHELL("echo on; while :; do sleep 1000; done");

	rig_start(&f->rig, &(struct rig_options){ .no_cgroup = use_shim,
						  .ring_max = 1 << 20,
						  .run_as = geteuid() == 0 ? NOBODY : 0 });
	place_attacker(f);
	snprintf(f->relay_pid, sizeof(f->relay_pid), "%d", (int)f->rig.pid);
	assert_int_equal(peer_open(&f->peer, &f->rig, ++f->epoch), 0);
	outcome_start(&f->bystander, &f->peer, &start);
	outcome_wait_text(&f->bystander, &f->peer, "on\n");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	outcome_free(&f->bystander);
	peer_close(&f->peer);
	rig_stop(&f->rig);
	free(f);
	return 0;
}

/* The relay answers, also a newcomer; commands start; the others go on. */
static void assert_unharmed(struct fixture *f)
{
	struct outcome o;

	assert_true(process_lives(f->rig.pid));
	outcome_run(&o, &f->peer, "echo fine");
	assert_string_equal(buf_str(&o.out), "fine\n");
	assert_int_equal(o.exit.reason, REASON_EXITED);
	assert_true(process_lives((pid_t)f->bystander.pid));
	outcome_free(&o);
	peer_close(&f->peer);
	assert_int_equal(peer_open(&f->peer, &f->rig, ++f->epoch), 0);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_LIST, &(struct wire_exec_list){}), 0);
}

static struct wire_exec_start attack_with(struct fixture *f, const char *argv[4], const char *verb,
					  const char *victim)
{
	struct wire_exec_start start = { .argv = { argv, victim ? 3 : 2 }, .credit = 8 << 20 };

	argv[0] = f->attacker;
	argv[1] = verb;
	argv[2] = victim;
	argv[3] = NULL;
	exec_id_new(start.exec_id);
	return start;
}

static void end_attack(struct fixture *f, const struct wire_exec_start *start)
{
	struct wire_exec_kill m = { .reason = REASON_CANCELLED, .at_once = 1 };

	memcpy(m.exec_id, start->exec_id, WIRE_ID_SIZE);
	assert_int_equal(peer_call(&f->peer, WIRE_EXEC_KILL, &m), 0);
}

static void no_door_to_the_relays_memory_and_descriptors_is_open(void **state)
{
	struct fixture *f = *state;
	const char *argv[4];
	struct wire_exec_start start = attack_with(f, argv, "pry", f->relay_pid);
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	assert_non_null(strstr(buf_str(&o.out), "done"));
	if (strstr(buf_str(&o.out), "OPEN"))
		fail_msg("%s", buf_str(&o.out));
	outcome_free(&o);
	/* The shim is a copy of the relay, and as closed; elsewhere the parent is the relay. */
	start = attack_with(f, argv, "pry", "parent");
	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	assert_non_null(strstr(buf_str(&o.out), "done"));
	if (strstr(buf_str(&o.out), "OPEN"))
		fail_msg("%s", buf_str(&o.out));
	outcome_free(&o);
	assert_unharmed(f);
}

static void signals_do_nothing_to_the_relay(void **state)
{
	struct fixture *f = *state;
	const char *argv[4];
	struct wire_exec_start start = attack_with(f, argv, "shower", f->relay_pid);
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait(&o, &f->peer);
	/* Of another user they do not even arrive. */
	assert_non_null(strstr(buf_str(&o.out), geteuid() == 0 ? "shut kill" : "OPEN kill"));
	outcome_free(&o);
	assert_unharmed(f);
}

/*
 * The limit counts all processes of the user, also those of earlier tests that are dead and that
 * the machine's init has not looked at yet.
 */
static uint64_t processes_now(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	uint64_t n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
	closedir(dir);
	return n;
}

static void forking_until_nothing_is_left_harms_only_itself(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *most =
		xasprintf("%llu", (unsigned long long)processes_now() + HOG_PROCESSES);
	const char *argv[4];
	struct wire_exec_start start = attack_with(f, argv, "processes", most);
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "full\n");
	assert_non_null(strstr(buf_str(&o.out), "EAGAIN"));
	assert_unharmed(f);
	end_attack(f, &start);
	assert_true(process_is_gone_soon((pid_t)o.pid));
	assert_unharmed(f);
	outcome_free(&o);
}

static void taking_every_descriptor_harms_only_itself(void **state)
{
	struct fixture *f = *state;
	const char *argv[4];
	struct wire_exec_start start = attack_with(f, argv, "descriptors", NULL);
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "full\n");
	assert_non_null(strstr(buf_str(&o.out), "EMFILE"));
	assert_unharmed(f);
	end_attack(f, &start);
	outcome_free(&o);
}

static void a_process_that_forks_and_leaves_for_ever_is_caught(void **state)
{
	struct fixture *f = *state;
	const char *argv[4], *env[] = { "PATH=/usr/bin:/bin", "RUNNER=this-one", NULL };
	struct wire_exec_start start = attack_with(f, argv, "run-away", NULL);
	struct wire_exec_kill m = { .reason = REASON_CANCELLED };
	struct outcome o, left;

	start.env = (struct wire_strv){ env, 2 };
	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "full\n");
	memcpy(m.exec_id, start.exec_id, WIRE_ID_SIZE);
	peer_ask(&f->peer, WIRE_EXEC_KILL, &m);
	outcome_wait(&o, &f->peer);
	assert_int_equal(o.exit.reason, REASON_CANCELLED);
	/* As many looks as a runner would need luck to stay out of. */
	outcome_run(&left, &f->peer,
		    "for i in 1 2 3 4 5 6 7 8 9 10; do cat /proc/[0-9]*/environ 2>/dev/null | "
		    "tr '\\0' '\\n' | grep '^RUNNER=this-one$'; done; echo looked");
	assert_string_equal(buf_str(&left.out), "looked\n");
	outcome_free(&o);
	outcome_free(&left);
	assert_unharmed(f);
}

static long oom_score(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/oom_score", (int)pid);
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, &text, 64, NULL), 0);
	return strtol(buf_str(&text), NULL, 10);
}

/* The machine's memory is not ours to use up: what the kernel would choose is asked instead. */
static void whoever_eats_the_memory_goes_before_the_relay(void **state)
{
	struct fixture *f = *state;
	const char *argv[4];
	struct wire_exec_start start = attack_with(f, argv, "memory", NULL);
	struct outcome o;

	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "full\n");
	assert_true(oom_score((pid_t)o.pid) > oom_score(f->rig.pid));
	/* Also what has eaten nothing. */
	assert_true(oom_score((pid_t)f->bystander.pid) > oom_score(f->rig.pid));
	assert_unharmed(f);
	end_attack(f, &start);
	outcome_free(&o);
}

static void floods_that_nobody_reads_fill_their_rings_and_nothing_else(void **state)
{
	struct fixture *f = *state;
	const char *argv[4];
	struct wire_exec_start start[8];
	struct outcome o[8];

	for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
		start[i] = attack_with(f, argv, "spool", NULL);
		start[i].credit = 0;
		outcome_start(&o[i], &f->peer, &start[i]);
		while (o[i].stalls == 0) {
			assert_int_not_equal(peer_next_on(&f->peer, o[i].stream), 0);
			outcome_take(&o[i], &f->peer);
		}
	}
	assert_unharmed(f);
	for (size_t i = 0; i < ARRAY_SIZE(o); i++) {
		end_attack(f, &start[i]);
		assert_true(process_is_gone_soon((pid_t)o[i].pid));
		outcome_free(&o[i]);
	}
}

static int run_group(const char *name)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(no_door_to_the_relays_memory_and_descriptors_is_open),
		T(signals_do_nothing_to_the_relay),
		T(forking_until_nothing_is_left_harms_only_itself),
		T(a_process_that_forks_and_leaves_for_ever_is_caught),
		T(taking_every_descriptor_harms_only_itself),
		T(whoever_eats_the_memory_goes_before_the_relay),
		T(floods_that_nobody_reads_fill_their_rings_and_nothing_else),
	};

	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

/* As a process of its own, because there is no way back. */
static int run_as_nobody(void)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
			_exit(97);
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		use_shim = true;
		exit(run_group("relay and payload of one ordinary user"));
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc > 1)
		_exit(attack(argv));
	if (geteuid() != 0) {
		use_shim = true;
		return run_group("relay and payload of one ordinary user");
	}
	failed = run_group("relay of root, payload of another, trees by cgroup");
	use_shim = true;
	failed += run_group("relay of root, payload of another, trees by shim");
	return failed + run_as_nobody();
}
