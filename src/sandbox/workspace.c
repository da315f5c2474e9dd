/*
 * A directory of the host as the place's workspace, whole and without a copy.
 *
 *   bind      the directory itself; the payload writes in its owner's name
 *   overlay   read-only below, and above it a layer in the place's own directory that takes what is
 *             written: afterwards the layer is the difference
 *
 * The directory need not be on the operator's list of paths, which is for what environments may
 * name: here a person names the directory of their own work, and whether they may is judged by the
 * server, which alone can speak to the keeper. What no place may ever have is refused here again.
 *
 * What the place is not to see of it (ignored files, which hold secrets more often than not, the
 * repository's config and hooks) is covered in the layer before it is mounted: a whiteout costs no
 * mount and cannot be taken away from inside, where nobody reaches the layer itself.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "sandbox/mount_calls.h"
#include "wire/hidden_paths.h"

#define OPAQUE "user.overlay.opaque"

void workspace_spec_clear(struct sandbox_workspace *w)
{
	close_fdp(&w->source_fd);
	free(steal(w->path));
	buf_free(&w->masks);
}

static bool is_within(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == 0 || path[len] == '/');
}

/* Stops: a place that sees the kernel's files, host services, or what is the keeper's. */
static int judge(const char *path, const struct sandbox_policy *policy,
		 const struct wire_strv *closed, struct error *err)
{
	static const char *const never[] = { "/proc", "/sys" };
	static const char *const unmounted[] = { "/dev", "/run" };

	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (is_within(path, never[i]))
			return error_set(err, ERR_FORBIDDEN, "%.200s is no directory for work",
					 path);
	/* Some keep their work in memory there: it can be had without what is around it. */
	for (size_t i = 0; i < ARRAY_SIZE(unmounted); i++)
		if (is_within(path, unmounted[i]))
			return error_set(err, ERR_UNPROCESSABLE,
					 "%.200s is not mounted into a place; copy it instead",
					 path);
	if (strcmp(path, "/") == 0)
		return error_set(err, ERR_FORBIDDEN, "the whole host is no workspace");
	return policy_guard(policy, closed, path, path, err);
}

/* Opened once: what was judged is what is mounted. */
static int open_source(const char *path, const struct sandbox_policy *policy,
		       const struct wire_strv *closed, struct sandbox_workspace *out,
		       struct error *err)
{
	char link[64], real[PATH_BOUND + 1];
	struct stat st;
	ssize_t n;

	if (path[0] != '/' || !path_is_clean(path))
		return error_set(err, ERR_VALIDATION, "%.200s is not a clean absolute path", path);
	out->source_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out->source_fd < 0 || fstat(out->source_fd, &st) < 0)
		return error_errno(err, errno, "the workspace %.200s", path);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", out->source_fd);
	n = readlink(link, real, sizeof(real) - 1);
	real[n > 0 ? n : 0] = 0;
	if (strcmp(real, path) != 0)
		return error_set(err, ERR_VALIDATION, "%.200s is really %.200s: name that", path,
				 real);
	out->path = xstrdup(path);
	out->owner = st.st_uid;
	out->group = st.st_gid;
	out->mode = st.st_mode & 07777;
	return judge(path, policy, closed, err);
}

static int check_masks(const struct buf *masks, struct error *err)
{
	const char *at = buf_str(masks), *end = at + masks->len;
	struct mask mask;
	unsigned count = 0;
	int r;

	while ((r = mask_next(&at, end, &mask, err)) > 0)
		if (++count > MASKS_COUNT_MAX)
			return error_set(err, ERR_UNPROCESSABLE,
					 "more than %u paths of the workspace would have to be "
					 "hidden; copy it instead",
					 MASKS_COUNT_MAX);
	return r;
}

/* The server's own file: nobody else's bytes are read with the keeper's rights. */
static int read_masks(const char *path, const struct sandbox_policy *policy, struct buf *out,
		      struct error *err)
{
	if (path[0] != '/' || !path_is_clean(path) || !policy->secret ||
	    !is_within(path, policy->secret))
		return error_set(err, ERR_VALIDATION, "the masks are a file of the data directory");
	if (file_read(AT_FDCWD, path, out, MASKS_MAX, err) < 0)
		return error_wrap(err, "what is to be hidden of the workspace");
	return check_masks(out, err);
}

int workspace_spec_read(const struct wire_sandbox *m, const struct sandbox_policy *policy,
			struct sandbox_workspace *out, struct error *err)
{
	bool masked = m->masks && m->masks[0];

	*out = (struct sandbox_workspace){ .source_fd = -1, .overlay = m->overlay };
	if (!m->workspace || !m->workspace[0])
		return m->overlay || masked
			       ? error_set(err, ERR_VALIDATION, "there is no workspace to overlay")
			       : 0;
	if (masked && !m->overlay)
		return error_set(err, ERR_VALIDATION, "only an overlaid workspace can be masked");
	if (m->overlay && m->tmpfs)
		return error_set(
			err, ERR_UNPROCESSABLE,
			"what is written to tmpfs cannot be collected from this host; copy "
			"the workspace, or use writable overlay");
	if (open_source(m->workspace, policy, &m->closed, out, err) < 0)
		return -1;
	return masked ? read_masks(m->masks, policy, &out->masks, err) : 0;
}

/* ---- outside ---- */

/* Whose files they seem to be: the payload's, if they are the owner's. -1 with err. */
static int table(const struct sandbox_birth *b, int userns_fd, struct error *err)
{
	const struct sandbox_workspace *w = &b->spec->workspace;
	uid_t payload = b->spec->uid;

	/*
	 * Writing through a table with more than one line, the relay, root of the namespace, could
	 * make files of the host's root.
	 */
	if (!w->overlay)
		return owner_userns(w->owner, w->group, b->base + payload, err);
	/* Each number of the range is the same number of the host: nothing to exchange. */
	if (w->owner == payload && w->group == payload)
		return fcntl(userns_fd, F_DUPFD_CLOEXEC, 3);
	return exchanged_userns(w->owner, w->group, b->base, payload, err);
}

int workspace_tree(const struct sandbox_birth *b, int userns_fd, int tree, struct error *err)
{
	const struct sandbox_workspace *w = &b->spec->workspace;
	uint64_t attributes = ATTR_NOSUID | ATTR_NODEV | (w->overlay ? ATTR_RDONLY : 0);
	_cleanup_close_ int fd = tree, ids = -1;

	if (fd < 0)
		return error_errno(err, errno, "opening the workspace %.200s", w->path);
	if (userns_fd >= 0) {
		ids = table(b, userns_fd, err);
		if (ids < 0)
			return -1;
	}
	if (tree_change(fd, attributes, ids, userns_fd < 0) < 0)
		return error_set(err, ERR_UNPROCESSABLE,
				 "the file system of %.200s cannot show it as the payload's (%s); "
				 "copy it instead",
				 w->path, strerror(errno));
	return steal_fd(&fd);
}

/* ---- inside ---- */

/* As it is below; an ordinary user's files are all that user's. */
static int take_after(const struct sandbox_birth *b, int fd, const struct stat *below)
{
	if (b->base && fchown(fd, below->st_uid, below->st_gid) < 0)
		return -1;
	return fchmod(fd, below->st_mode & 07777);
}

/* One directory deeper in both. 1: done; 0: there is none below; -1: errno. */
static int step(const struct sandbox_birth *b, int *upper, int *lower, const char *name)
{
	int below = openat(*lower, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool made = mkdirat(*upper, name, 0700) == 0;
	struct stat st;
	int above;

	if (below < 0) {
		/* It was there when the list was made. */
		if (made)
			unlinkat(*upper, name, AT_REMOVEDIR);
		return 0;
	}
	close(*lower);
	*lower = below;
	above = openat(*upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (above < 0)
		return -1;
	close(*upper);
	*upper = above;
	if (made && (fstat(below, &st) < 0 || take_after(b, above, &st) < 0))
		return -1;
	return 1;
}

static int cover_file(const struct sandbox_birth *b, int upper, const char *name,
		      const char *content)
{
	_cleanup_close_ int fd =
		openat(upper, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0)
		return -1;
	if (b->base && fchown(fd, b->spec->uid, b->spec->uid) < 0)
		return -1;
	return fd_write_all(fd, content, strlen(content), NULL);
}

static int cover_directory(const struct sandbox_birth *b, int upper, const char *name)
{
	_cleanup_close_ int fd = -1;

	if (mkdirat(upper, name, 0755) < 0)
		return -1;
	fd = openat(upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fsetxattr(fd, OPAQUE, "y", 1, 0) < 0)
		return -1;
	return b->base ? fchown(fd, b->spec->uid, b->spec->uid) : 0;
}

static int cover(const struct sandbox_birth *b, int upper, int lower, const struct mask *mask,
		 const char *name)
{
	struct stat st;
	int r;

	if (mask->kind == MASK_FILE)
		r = cover_file(b, upper, name, mask->content);
	else if (fstatat(lower, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	else if (mask->kind == MASK_EMPTY)
		r = cover_directory(b, upper, name);
	else
		r = mknodat(upper, name, S_IFCHR, makedev(0, 0));
	/* Twice in the list. */
	return r < 0 && errno == EEXIST ? 0 : r;
}

static int cover_path(const struct sandbox_birth *b, int upper_fd, int lower_fd,
		      const struct mask *mask)
{
	_cleanup_close_ int upper = fcntl(upper_fd, F_DUPFD_CLOEXEC, 3);
	_cleanup_close_ int lower = fcntl(lower_fd, F_DUPFD_CLOEXEC, 3);
	_cleanup_free_ char *copy = xstrdup(mask->path);
	char *rest = copy, *name;
	int r = 1;

	if (upper < 0 || lower < 0)
		return -1;
	while (r > 0 && (name = strsep(&rest, "/"))) {
		if (!rest)
			return cover(b, upper, lower, mask, name);
		r = step(b, &upper, &lower, name);
	}
	return r;
}

int workspace_prepare_upper(const struct sandbox_birth *b, int upper_fd, int lower_fd,
			    struct error *err)
{
	const struct sandbox_workspace *w = &b->spec->workspace;
	const char *at = buf_str(&w->masks), *end = at + w->masks.len;
	struct mask mask;
	struct stat st;

	while (!FENCE_OFF("sandbox.masks") && mask_next(&at, end, &mask, NULL) > 0)
		if (cover_path(b, upper_fd, lower_fd, &mask) < 0)
			return error_errno(err, errno, "hiding %.200s of the workspace", mask.path);
	if (fstat(lower_fd, &st) < 0 || take_after(b, upper_fd, &st) < 0)
		return error_errno(err, errno, "giving the workspace to its user");
	return 0;
}
