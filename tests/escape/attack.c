/*
 * attack [KEY=VALUE...] [--only NAME,NAME]: tries every case of cases.h and prints a line for each:
 *
 *     NAME held|open|hung|broke  HOW
 *
 * Each runs in a process of its own, so that one that is killed for trying is held too.
 */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_SECONDS 10
#define EXIT_HELD 40
#define EXIT_OPEN 41

static char how[400];

void said(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(how, sizeof(how), fmt, ap);
	va_end(ap);
}

bool came_through(long result)
{
	return result >= 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS &&
			       errno != EAFNOSUPPORT && errno != EPROTONOSUPPORT &&
			       errno != ESOCKTNOSUPPORT && errno != EOPNOTSUPP && errno != ENOENT);
}

bool has_token(const struct facts *f, int dir, const char *path)
{
	char text[512] = { 0 };
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n <= 0 || !strstr(text, f->token))
		return false;
	said("read %s", path);
	return true;
}

static const struct {
	const char *name, *about;
	bool (*run)(const struct facts *f);
} ALL[] = {
#define X(name, about, function) { #name, about, function },
#include "cases.h"
	CASES(X)
#undef X
};

static void try_one(const struct facts *f, size_t i)
{
	int status, result[2];
	ssize_t n;
	pid_t pid;

	how[0] = 0;
	if (pipe2(result, O_CLOEXEC) < 0)
		exit(1);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		bool through;

		/* What is open is a finding of one case. */
		close(result[0]);
		if (dup3(result[1], REPORT_FD, O_CLOEXEC) < 0)
			_exit(1);
		close(result[1]);
		result[1] = REPORT_FD;
		alarm(CASE_SECONDS);
		through = ALL[i].run(f);
		if (write(result[1], how, strlen(how)) < 0)
			_exit(1);
		_exit(through ? EXIT_OPEN : EXIT_HELD);
	}
	close(result[1]);
	n = pid > 0 ? read(result[0], how, sizeof(how) - 1) : 0;
	how[n > 0 ? n : 0] = 0;
	close(result[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		exit(1);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("%s hung\n", ALL[i].name);
	else if (WIFSIGNALED(status))
		printf("%s held killed by signal %d\n", ALL[i].name, WTERMSIG(status));
	else if (WEXITSTATUS(status) == EXIT_OPEN || WEXITSTATUS(status) == EXIT_HELD)
		printf("%s %s %s\n", ALL[i].name,
		       WEXITSTATUS(status) == EXIT_OPEN ? "open" : "held", how);
	else
		printf("%s broke exit %d\n", ALL[i].name, WEXITSTATUS(status));
}

static bool is_chosen(const char *only, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = only; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == 0))
			return true;
	}
	return !only;
}

static const char *value_of(int argc, char **argv, const char *key, const char *fallback)
{
	size_t len = strlen(key);

	for (int i = 1; i < argc; i++)
		if (strncmp(argv[i], key, len) == 0 && argv[i][len] == '=')
			return argv[i] + len + 1;
	return fallback;
}

int main(int argc, char **argv)
{
	const char *only = value_of(argc, argv, "only", NULL);
	struct facts f = {
		.token = value_of(argc, argv, "token", "no token was given"),
		.canary = value_of(argc, argv, "canary", "/nonexistent"),
		.open_dir = value_of(argc, argv, "open_dir", "/nonexistent"),
		.data = value_of(argc, argv, "data", "/nonexistent"),
		.neighbour = value_of(argc, argv, "neighbour", "/nonexistent"),
		.abstract = value_of(argc, argv, "abstract", "nobody"),
		.service = value_of(argc, argv, "service", "/nowhere"),
		.hostname = value_of(argc, argv, "hostname", ""),
		.host_pid = atol(value_of(argc, argv, "host_pid", "0")),
		.shm_key = atol(value_of(argc, argv, "shm_key", "0")),
		.port = atol(value_of(argc, argv, "port", "0")),
		.uid = atol(value_of(argc, argv, "uid", "-1")),
	};

	if (argc == 2 && strcmp(argv[1], "list") == 0) {
		for (size_t i = 0; i < sizeof(ALL) / sizeof(ALL[0]); i++)
			printf("%s %s\n", ALL[i].name, ALL[i].about);
		return 0;
	}
	for (size_t i = 0; i < sizeof(ALL) / sizeof(ALL[0]); i++)
		if (is_chosen(only, ALL[i].name))
			try_one(&f, i);
	return 0;
}
