/*
 * verdicts: what the filter that this program runs under says to every system call of this machine,
 * through all three ways into the kernel, without any of them being carried out. More probes come
 * on standard input, a line each: NAME [ARGUMENT...]. Prints
 *
 *     64|x32|i386 NAME[(ARGUMENTS)] allow|kill|ERRNO-NAME
 *
 * Of several filters the strictest wins, and asking a tracer is weaker than every refusal. So a
 * child adds a filter that asks its tracer about calls with a mark in the sixth argument; what the
 * tracer is asked about, the filter outside has let through. The tracer cancels it.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK 0x5ec0de5u
#define PROBES_MAX 4096
#define X32_BIT 0x40000000L
#define LAST_I386 470
#define BEYOND 600 /* numbers that no kernel has yet */

enum way { WAY_64, WAY_X32, WAY_I386 };
static const char *const WAYS[] = { "64", "x32", "i386" };

struct probe {
	enum way way;
	long number;
	char name[80];
	unsigned long arg[5];
	long result; /* negative errno; 0: let through; -4096: killed */
};
#define KILLED -4096
#define CANCELLED ENOTRECOVERABLE

static const struct {
	const char *name;
	long number;
} CALLS[] = {
#define X(name, number) { name, number },
#include "syscalls.inc"
#undef X
};

static struct probe *probes; /* shared with the children */
static volatile size_t *at;
static size_t count;

static long call_i386(long number)
{
	long result;

	/* The sixth argument is in ebp there. */
	__asm__ volatile("push %%rbp\n\t"
			 "mov %[mark], %%ebp\n\t"
			 "int $0x80\n\t"
			 "pop %%rbp"
			 : "=a"(result)
			 : "a"(number), "b"(-1L), "c"(-1L), "d"(-1L), "S"(-1L),
			   "D"(-1L), [mark] "i"(MARK)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}

static long call_64(const struct probe *p)
{
	long result, number = p->way == WAY_X32 ? p->number | X32_BIT : p->number;
	register unsigned long a3 __asm__("r10") = p->arg[3];
	register unsigned long a4 __asm__("r8") = p->arg[4];
	register unsigned long a5 __asm__("r9") = MARK;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(p->arg[0]), "S"(p->arg[1]), "d"(p->arg[2]), "r"(a3),
			   "r"(a4), "r"(a5)
			 : "rcx", "r11", "memory");
	return result;
}

static void ask_tracer(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MARK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
		_exit(3);
}

static _Noreturn void child(void)
{
	if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
		_exit(2);
	raise(SIGSTOP);
	ask_tracer();
	for (; *at < count; (*at)++) {
		struct probe *p = &probes[*at];
		long r = p->way == WAY_I386 ? call_i386(p->number) : call_64(p);

		p->result = r == -CANCELLED ? 0 : r;
	}
	_exit(0);
}

static void cancel(pid_t pid)
{
	struct user_regs_struct regs;

	ptrace(PTRACE_GETREGS, pid, 0, &regs);
	regs.orig_rax = (unsigned long)-1;
	regs.rax = (unsigned long)-CANCELLED;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
}

/* One child, until it has asked everything or was killed for asking. */
static void trace_child(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		child();
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
		fprintf(stderr, "cannot trace: %s\n", strerror(errno));
		exit(1);
	}
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL);
	ptrace(PTRACE_CONT, pid, 0, 0);
	while (waitpid(pid, &status, 0) == pid) {
		int sig = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;

		if (!WIFSTOPPED(status))
			break;
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
			cancel(pid);
			sig = 0;
		}
		ptrace(PTRACE_CONT, pid, 0, sig);
	}
	if (WIFSIGNALED(status)) {
		probes[*at].result = KILLED;
		(*at)++;
	} else if (WEXITSTATUS(status) != 0) {
		fprintf(stderr, "the child failed with %d\n", WEXITSTATUS(status));
		exit(1);
	}
}

static struct probe *add(enum way way, const char *name, long number)
{
	struct probe *p = &probes[count];

	if (count >= PROBES_MAX)
		exit(4);
	count++;
	p->way = way;
	p->number = number;
	snprintf(p->name, sizeof(p->name), "%s", name);
	return p;
}

static long number_of(const char *name)
{
	for (size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++)
		if (strcmp(CALLS[i].name, name) == 0)
			return CALLS[i].number;
	return atol(name);
}

static void read_probes(void)
{
	char line[80];

	while (fgets(line, sizeof(line), stdin)) {
		char *rest = line, *word;
		struct probe *p;
		size_t i = 0, len;

		line[strcspn(line, "\n")] = 0;
		p = add(WAY_64, line, 0);
		for (len = 0; p->name[len]; len++)
			if (p->name[len] == ' ')
				p->name[len] = ',';
		p->number = number_of(strsep(&rest, " "));
		while (i < 5 && (word = strsep(&rest, " ")))
			p->arg[i++] = strtoul(word, NULL, 0);
	}
}

int main(void)
{
	size_t calls = sizeof(CALLS) / sizeof(CALLS[0]);
	char name[16];

	probes = mmap(NULL, PROBES_MAX * sizeof(*probes) + sizeof(*at), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (probes == MAP_FAILED)
		return 1;
	at = (volatile size_t *)(probes + PROBES_MAX);
	for (size_t i = 0; i < calls; i++) {
		add(WAY_64, CALLS[i].name, CALLS[i].number);
		add(WAY_X32, CALLS[i].name, CALLS[i].number);
	}
	for (long number = 512; number < 548; number++) {
		/* x32 has numbers of its own from 512 on. */
		snprintf(name, sizeof(name), "%ld", number);
		add(WAY_X32, name, number);
	}
	for (long number = 0; number <= LAST_I386; number++) {
		snprintf(name, sizeof(name), "%ld", number);
		add(WAY_I386, name, number);
	}
	add(WAY_64, "600", BEYOND);
	read_probes();
	while (*at < count)
		trace_child();
	for (size_t i = 0; i < count; i++) {
		const struct probe *p = &probes[i];

		printf("%s %s %s\n", WAYS[p->way], p->name,
		       p->result == KILLED ? "kill"
		       : p->result == 0    ? "allow"
					   : strerrorname_np((int)-p->result));
	}
	return 0;
}
