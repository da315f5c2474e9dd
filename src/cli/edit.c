#include "cli/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/spawn.h"
#include "base/text.h"

#define DOCUMENT_MAX (1 << 20)

/* VISUAL and EDITOR may hold arguments of their own, so a shell takes them apart, as for git. */
static int run_editor(const char *path, bool *said_yes, struct error *err)
{
	char *const argv[] = {
		(char *)"/bin/sh", (char *)"-c", (char *)"exec ${VISUAL:-${EDITOR:-vi}} \"$1\"",
		(char *)"sh",      (char *)path, NULL
	};
	const struct spawn_spec spec = {
		.argv = argv,
		.envp = environ,
		.stdin_fd = STDIN_FILENO,
		.stdout_fd = STDOUT_FILENO,
		.stderr_fd = STDERR_FILENO,
	};
	pid_t pid;
	int status;

	if (spawn(&spec, &pid, NULL, err) < 0)
		return error_wrap(err, "cannot start the editor");
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return error_errno(err, errno, "cannot wait for the editor");
	}
	*said_yes = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return 0;
}

static void put_problem(struct buf *out, const char *problem)
{
	if (!problem)
		return;
	buf_puts(out, "# ");
	for (const char *c = problem; *c; c++)
		buf_puts(out, *c == '\n' ? "\n# " : (const char[]){ *c, '\0' });
	buf_puts(out, "\n# Save the file unchanged to give up.\n");
}

/* Past the lines that begin with # at the top. */
static const char *without_comments(const char *text)
{
	while (*text == '#') {
		const char *end = strchr(text, '\n');

		text = end ? end + 1 : text + strlen(text);
	}
	return text;
}

static int edit_file(const char *path, int fd, const char *text, const char *problem, char **saved,
		     struct error *err)
{
	_cleanup_buf_ struct buf before = { 0 }, after = { 0 };
	bool said_yes = false;

	put_problem(&before, problem);
	buf_puts(&before, text);
	if (fd_pwrite_all(fd, before.data, before.len, 0, err) < 0 ||
	    run_editor(path, &said_yes, err) < 0)
		return -1;
	if (!said_yes)
		return 0;
	/* By its name: many editors write another file and rename it. */
	if (file_read(AT_FDCWD, path, &after, DOCUMENT_MAX, err) < 0)
		return -1;
	*saved = xstrdup(without_comments(buf_str(&after)));
	if (!str_blank(*saved))
		return 1;
	free(*saved);
	*saved = NULL;
	return 0;
}

int edit_text(const char *text, const char *problem, char **saved, struct error *err)
{
	const char *dir = getenv("TMPDIR");
	_cleanup_free_ char *path =
		xasprintf("%s/berth-edit-XXXXXX.json", dir && *dir ? dir : "/tmp");
	_cleanup_close_ int fd = mkostemps(path, (int)strlen(".json"), O_CLOEXEC);
	int edited;

	*saved = NULL;
	if (fd < 0)
		return error_errno(err, errno, "cannot make a file to edit in");
	edited = edit_file(path, fd, text, problem, saved, err);
	unlink(path);
	return edited;
}
