#include "relay/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/mem.h"

/* The child never returns through its frames, so their red zones would stay poisoned. */
#define ON_BORROWED_STACK __attribute__((no_sanitize("address", "undefined")))

#define CLONE_INTO_CGROUP_ 0x200000000ull
#define PAYLOAD_OOM_ADJUST "300"
#define BPF_INSTRUCTION 8
#define SECCOMP_FILTER 1u
#define STOPS_MAX 20u
#define FUTEX_WAIT_ 0

struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};

void *launch_stack_new(void)
{
	void *stack = mmap(NULL, LAUNCH_STACK_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		abort();
	return stack;
}

ON_BORROWED_STACK static int child_fail(struct launch *l, enum launch_step step)
{
	l->failed_step = step;
	l->failed_errno = errno;
	return 127;
}

/* First of all: what follows, and whatever it will start, counts against the place's limits. */
ON_BORROWED_STACK static int child_enter(const struct launch *l)
{
	for (size_t i = 0; i < l->enter_count; i++)
		if (write(l->enter_fds[i], "0", 1) != 1)
			return -1;
	return 0;
}

/* Last of all: what comes before needs calls that the filter may refuse. */
ON_BORROWED_STACK static int child_filter(const struct launch *l)
{
	struct {
		unsigned short count;
		const void *program;
	} filter = { (unsigned short)(l->filter_len / BPF_INSTRUCTION), l->filter };

	if (!l->filter)
		return 0;
	return (int)syscall(SYS_seccomp, SECCOMP_FILTER, 0u, &filter);
}

ON_BORROWED_STACK static int child_stdio(const struct launch *l)
{
	setsid();
	/* Job control needs the terminal before any byte is read from it. */
	if (l->terminal && ioctl(l->stdin_fd, TIOCSCTTY, 0) < 0)
		return -1;
	if (dup2(l->stdin_fd, 0) < 0 || dup2(l->stdout_fd, 1) < 0 || dup2(l->stderr_fd, 2) < 0)
		return -1;
	/* Whatever the relay has open, sockets and spool above all, ends here. */
	return FENCE_OFF("relay.wall.close_fds") ? 0 : (int)syscall(SYS_close_range, 3u, ~0u, 0u);
}

ON_BORROWED_STACK static int child_limits(const struct launch *l)
{
	for (size_t i = 0; i < l->limit_count; i++)
		if (syscall(SYS_prlimit64, 0, l->limits[i].resource, &l->limits[i].value, NULL) < 0)
			return -1;
	return 0;
}

/* Raw system calls: the libc functions would try to change all threads of the shared memory. */
ON_BORROWED_STACK static int child_user(const struct launch *l)
{
	const struct user *user = l->user;

	if (user && (syscall(SYS_setgroups, user->group_count, user->groups) < 0 ||
		     syscall(SYS_setresgid, user->gid, user->gid, user->gid) < 0 ||
		     syscall(SYS_setresuid, user->uid, user->uid, user->uid) < 0))
		return -1;
	if (l->confine && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	/* Changing ids clears it, so it comes last: the payload does not outlive its relay. */
	return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

/* When memory runs out the payload goes before the relay. Not allowed everywhere: a wish. */
ON_BORROWED_STACK static void prefer_oom(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, PAYLOAD_OOM_ADJUST, sizeof(PAYLOAD_OOM_ADJUST) - 1) < 0)
		errno = 0;
	close(fd);
}

/* Returns only with the errno of a failure. */
ON_BORROWED_STACK static int child_exec(const struct launch *l)
{
	const char *name = l->argv[0], *dir = strchr(name, '/') ? "" : l->path;
	size_t name_size = strlen(name) + 1, len;
	char path[PATH_MAX];
	int saved = ENOENT;

	/* As it stands: it has a slash, or there is nothing to search. */
	if (dir[strspn(dir, ":")] == 0) {
		execve(name, l->argv, l->envp);
		return errno == ENOTDIR ? ENOENT : errno;
	}
	for (; *dir; dir += len + (dir[len] == ':')) {
		len = strcspn(dir, ":");
		/* An empty entry would mean the working directory: never, it is the payload's to
		 * write. */
		if (len == 0)
			continue;
		if (len + 1 + name_size > sizeof(path))
			return ENAMETOOLONG;
		memcpy(path, dir, len);
		path[len] = '/';
		memcpy(path + len + 1, name, name_size);
		execve(path, l->argv, l->envp);
		/* Like a shell: what exists but may not be run is remembered, the search goes on.
		 */
		if (errno != ENOENT && errno != ENOTDIR)
			saved = errno;
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
			break;
	}
	return saved;
}

ON_BORROWED_STACK static int child_run(void *arg)
{
	static const uint64_t no_signals;
	struct launch *l = arg;

	if (child_enter(l) < 0)
		return child_fail(l, STEP_ENTER);
	if (l->confine && !l->oom)
		prefer_oom("/proc/self/oom_score_adj");
	/* The root's descriptor is closed with the others, so the base of cwd is entered first. */
	if (fchdir(l->root_fd) < 0)
		return child_fail(l, STEP_CWD);
	if (child_stdio(l) < 0)
		return child_fail(l, STEP_STDIO);
	if (child_limits(l) < 0)
		return child_fail(l, STEP_LIMITS);
	if (child_user(l) < 0)
		return child_fail(l, STEP_USER);
	if (l->cwd[0] && chdir(l->cwd) < 0)
		return child_fail(l, STEP_CWD);
	umask(022);
	/* The relay blocks all signals instead of ignoring some, so only the mask needs undoing. */
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, sizeof(no_signals));
	if (child_filter(l) < 0)
		return child_fail(l, STEP_FILTER);
	errno = child_exec(l);
	return child_fail(l, STEP_EXEC);
}

#if defined(__x86_64__)
/* Without errno, which the child shares and may be writing at this moment. */
static long raw_call4(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

static long clone3_call(struct clone3_args *args, int (*fn)(void *), void *arg)
{
	long result;
	register int (*entry)(void *) __asm__("r8") = fn;
	register void *argument __asm__("r9") = arg;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r9, %%rdi\n\t"
			 "call *%%r8\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(result)
			 : "a"((long)SYS_clone3), "D"(args), "S"(sizeof(*args)), "r"(entry),
			   "r"(argument), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
static long raw_call4(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

static long clone3_call(struct clone3_args *args, int (*fn)(void *), void *arg)
{
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = (long)sizeof(*args);
	register int (*entry)(void *) __asm__("x10") = fn;
	register void *argument __asm__("x11") = arg;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x0, x11\n\t"
			 "blr x10\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc #0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(entry), "r"(argument), [exit] "i"(SYS_exit)
			 : "memory");
	return x0;
}
#else
#define NO_CLONE3 1
static long raw_call4(long number, long a, long b, long c, long d)
{
	return syscall(number, a, b, c, d);
}

static long clone3_call(struct clone3_args *args, int (*fn)(void *), void *arg)
{
	(void)args;
	(void)fn;
	(void)arg;
	return -ENOSYS;
}
#endif

bool launch_knows_cgroups(void)
{
#ifdef NO_CLONE3
	return false;
#else
	return true;
#endif
}

void launch_oom_open(struct launch_oom *oom)
{
	ssize_t n = -1;

	oom->fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	if (oom->fd >= 0)
		n = read(oom->fd, oom->own, sizeof(oom->own) - 1);
	if (n > 0) {
		oom->own[n] = 0;
		return;
	}
	if (oom->fd >= 0)
		close(oom->fd);
	oom->fd = -1;
}

static void oom_stand(const struct launch_oom *oom, const char *value)
{
	/* Without leave to change it the payload is as safe as the relay: a wish, as above. */
	if (oom && pwrite(oom->fd, value, strlen(value), 0) < 0)
		errno = 0;
}

bool launch_nudge(pid_t pid, unsigned *stops)
{
	siginfo_t info = { 0 };

	/* Asked as its parent: of another user's processes the relay sees nothing in /proc. */
	if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
		return true;
	if (++*stops >= STOPS_MAX) {
		kill(pid, SIGKILL);
		return false;
	}
	kill(pid, SIGCONT);
	return true;
}

/*
 * Until the child has become its program or has ended: then the kernel clears the word, and wakes
 * who waits for that. False: it had to be killed.
 */
static bool await_program(pid_t pid, int *word)
{
	const struct timespec look = { .tv_nsec = LAUNCH_LOOK_MS * 1000000L };
	unsigned stops = 0;
	bool alive = true;
	int value;

	while ((value = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != 0) {
		long r = raw_call4(SYS_futex, (long)word, FUTEX_WAIT_, value, (long)&look);

		if (r == -ETIMEDOUT && alive)
			alive = launch_nudge(pid, &stops);
	}
	return alive;
}

int launch(struct launch *l, void *stack, int cgroup_fd, pid_t *pid)
{
	char oom_path[48];
	long result;
	int on_its_way = 1;

	l->failed_step = STEP_NONE;
	l->failed_errno = 0;
	if (l->oom && l->oom->fd < 0)
		l->oom = NULL;
	oom_stand(l->oom, PAYLOAD_OOM_ADJUST);
	if (cgroup_fd >= 0) {
		struct clone3_args args = {
			.flags = CLONE_VM | CLONE_CHILD_CLEARTID | CLONE_INTO_CGROUP_,
			.child_tid = (uint64_t)(uintptr_t)&on_its_way,
			.exit_signal = SIGCHLD,
			.stack = (uint64_t)(uintptr_t)stack,
			.stack_size = LAUNCH_STACK_SIZE,
			.cgroup = (uint64_t)cgroup_fd,
		};

		result = clone3_call(&args, child_run, l);
		if (result < 0) {
			errno = (int)-result;
			result = -1;
		}
	} else {
		result = clone(child_run, (char *)stack + LAUNCH_STACK_SIZE,
			       CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, l, NULL, NULL,
			       &on_its_way);
	}
	if (result < 0)
		child_fail(l, STEP_CLONE);
	else if (!await_program((pid_t)result, &on_its_way)) {
		l->failed_step = STEP_STOPPED;
		l->failed_errno = EINTR;
	}
	if (l->oom)
		oom_stand(l->oom, l->oom->own);
	if (result < 0)
		return -1;
	if (l->failed_step != STEP_NONE) {
		while (waitpid((pid_t)result, NULL, 0) < 0 && errno == EINTR)
			;
		return -1;
	}
	/*
	 * Before it is the program it shares the relay's memory, and with it the protection that
	 * keeps an ordinary user's process from its own files in /proc.
	 */
	if (!l->confine && !l->oom) {
		snprintf(oom_path, sizeof(oom_path), "/proc/%ld/oom_score_adj", result);
		prefer_oom(oom_path);
	}
	*pid = (pid_t)result;
	return 0;
}
