/*
 * An unpacked root knows its own users, and mostly not the payload's. Without a line for it
 * programs have no name and no home for who they run as, so it gets one, in the place's own layer.
 *
 * The root is hostile, and the host's tree is still in sight here: every step is one directory, no
 * link is followed (CVE-2024-45310 and its kind) and nothing but a regular file is read. Where
 * something is odd, the root keeps what it says.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"

#define DATABASE_MAX (1u << 20)

/* In passwd and group alike the third field is the number. */
static bool knows(const struct buf *text, unsigned long id)
{
	const char *line = buf_str(text);

	while (line && *line) {
		const char *end = strchrnul(line, '\n');
		const char *field = memchr(line, ':', (size_t)(end - line));
		char *after;

		field = field ? memchr(field + 1, ':', (size_t)(end - field - 1)) : NULL;
		if (field && strtoul(field + 1, &after, 10) == id && after > field + 1 &&
		    *after == ':')
			return true;
		line = *end ? end + 1 : NULL;
	}
	return false;
}

/* False: it is no file that can be added to. */
static bool read_database(int etc, const char *name, struct buf *out)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (etc < 0)
		return true;
	fd = openat(etc, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       fd_read_all(fd, out, DATABASE_MAX, NULL) == 0;
}

static int add_line(int lower_etc, int upper, const char *name, unsigned long id, const char *line,
		    struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int etc = -1, fd = -1;

	if (!read_database(lower_etc, name, &text) || knows(&text, id))
		return 0;
	if (text.len > 0 && text.data[text.len - 1] != '\n')
		buf_append(&text, "\n", 1);
	buf_append(&text, line, strlen(line));
	if (mkdirat(upper, "etc", 0755) < 0 && errno != EEXIST)
		return error_errno(err, errno, "making /etc of the place");
	etc = openat(upper, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* An earlier holding of the same files has it already, or has put something else there. */
	if (etc >= 0)
		fd = openat(etc, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return errno == EEXIST || errno == ENOTDIR || errno == ELOOP
			       ? 0
			       : error_errno(err, errno, "adding the user to /etc/%s", name);
	return fd_write_all(fd, text.data, text.len, err);
}

int root_user_add(const struct sandbox_birth *b, int lower, int upper, struct error *err)
{
	const struct sandbox_spec *spec = b->spec;
	const unsigned id = spec->uid;
	_cleanup_free_ char *user = xasprintf("%s:x:%u:%u:%s:%s%s:/bin/sh\n", spec->user, id, id,
					      spec->user, id ? "/home/" : "/", spec->user);
	_cleanup_free_ char *group = xasprintf("%s:x:%u:\n", spec->user, id);
	_cleanup_close_ int etc =
		openat(lower, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (etc < 0 && errno != ENOENT)
		return 0;
	return add_line(etc, upper, "passwd", id, user, err) < 0
		       ? -1
		       : add_line(etc, upper, "group", id, group, err);
}
