#include "cli/api.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"

#define START_MS 10000
#define LOG_TAIL 300

extern char **environ;

/* The end of what the server said, from where this start began. */
static char *log_tail(const char *path, off_t from)
{
	_cleanup_buf_ struct buf text = { 0 };
	char *start;

	if (file_read(AT_FDCWD, path, &text, 64 << 20, NULL) < 0 || (off_t)text.len <= from)
		return xstrdup("it printed no error");
	start = text.data + MAX_OF((size_t)from, text.len > LOG_TAIL ? text.len - LOG_TAIL : 0);
	return str_trimmed(start);
}

int autostart(struct cli *cli, struct api *api, struct error *err)
{
	char *argv[] = { cli->program,     (char *)"serve", (char *)"--idle-exit",
			 (char *)"--data", cli->data_path,  NULL };
	_cleanup_free_ char *log_path = path_join(cli->data_path, "server.log");
	_cleanup_close_ int log = -1, pidfd = -1;
	struct spawn_spec spec = {
		.argv = argv, .envp = environ, .stdin_fd = -1, .new_session = true
	};
	struct clock clock;
	int64_t deadline;
	off_t from;
	pid_t pid;

	if (dir_make(AT_FDCWD, cli->data_path, 0700, err) < 0)
		return -1;
	log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log < 0)
		return error_errno(err, errno, "cannot write %s", log_path);
	from = lseek(log, 0, SEEK_END);
	spec.stdout_fd = spec.stderr_fd = log;
	if (!cli->quiet)
		fprintf(stderr, "berth: starting a server on %s\n", cli->data_path);
	if (spawn(&spec, &pid, &pidfd, err) < 0)
		return error_wrap(err, "cannot start a server");
	clock_init_system(&clock);
	deadline = clock_mono(&clock) + START_MS;
	/* A server that ends may have lost the race against another one: then that one answers. */
	for (bool ended = false;;) {
		struct pollfd gone = { .fd = ended ? -1 : pidfd, .events = POLLIN };

		error_clear(err);
		if (api_call(api, "GET", "/api/health", NULL, NULL, err) == 0)
			return 0;
		if (clock_mono(&clock) > deadline) {
			_cleanup_free_ char *tail = log_tail(log_path, from);

			return error_set(err, ERR_UNAVAILABLE,
					 "the server did not come up on %s: %s", cli->data_path,
					 tail);
		}
		if (poll(&gone, 1, 10) > 0) {
			int status = 0;

			ended = true;
			waitpid(pid, &status, 0);
			/* Losing the race ends with its own code; anything else will not come up.
			 */
			if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_ALREADY_RUNNING)
				deadline = MIN_OF(deadline, clock_mono(&clock) + 200);
		}
	}
}
