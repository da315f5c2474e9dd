/*
 * Whose a directory is. Berth writes trees only into directories that were empty or that it made,
 * and says so on them: the attribute user.berth.made of the root, or, where the file system has no
 * such attributes, the file .berth/made in it (.berth at the root is part of no tree).
 *
 * The payload owns the directory and can forge or remove the mark. That is good enough, because the
 * mark keeps Berth from mistakes, not the payload from mischief: a put acts with the payload's own
 * rights, so a forged mark lets it overwrite only what the payload could overwrite itself, and a
 * removed one makes the next put into its own place refuse.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "relay/file_tree_root.h"

#define MARK_ATTRIBUTE "user.berth.made"
#define MARK_DIR ".berth"
#define MARK_FILE MARK_DIR "/made"

static bool is_marked(int root)
{
	_cleanup_close_ int fd = -1;
	char value;

	if (fgetxattr(root, MARK_ATTRIBUTE, &value, sizeof(value)) == 1)
		return true;
	fd = MAX_OF(tree_open(root, MARK_FILE, O_PATH), -1);
	return fd >= 0;
}

static int mark(int root)
{
	_cleanup_close_ int dir = -1;
	_cleanup_close_ int fd = -1;

	if (fsetxattr(root, MARK_ATTRIBUTE, "1", 1, 0) == 0)
		return 0;
	if (mkdirat(root, MARK_DIR, 0700) < 0 && errno != EEXIST)
		return -errno;
	dir = MAX_OF(tree_open(root, MARK_DIR, O_PATH | O_DIRECTORY), -1);
	if (dir < 0)
		return -ENOTDIR;
	fd = openat(dir, "made", O_CREAT | O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : 0;
}

/* 1, 0, or -errno. */
static int is_empty(int root)
{
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!dir) {
		int errnum = errno;

		close_fdp(&fd);
		return -errnum;
	}
	while ((entry = readdir(dir)))
		if (!streq(entry->d_name, ".") && !streq(entry->d_name, ".."))
			break;
	closedir(dir);
	return !entry;
}

/* Directories that are everybody's: a tree in them would be among other things. */
static bool is_shared(const struct relay *relay, const struct stat *root)
{
	const char *shared[] = { "/", "/tmp", "/var/tmp", relay->config.payload.home };

	for (size_t i = 0; i < ARRAY_SIZE(shared); i++) {
		struct stat st;

		if (stat(shared[i], &st) == 0 && st.st_dev == root->st_dev &&
		    st.st_ino == root->st_ino)
			return true;
	}
	return false;
}

static int make_root(const struct relay *relay, const char *path, bool *made)
{
	int r = root_path_make_parents(relay, path);

	if (r == 0)
		r = root_path_mkdir(relay, path, 0755);
	*made = r == 0;
	/* Another one may have been quicker; then it is looked at like any other. */
	if (r < 0 && r != -EEXIST)
		return r;
	return tree_root_open(relay, path);
}

int tree_root_for_put(const struct relay *relay, const struct wire_tree_put *m,
		      struct root_refusal *why)
{
	int r = tree_root_open(relay, m->root);
	_cleanup_close_ int root = -1;
	bool made = false;
	struct stat st;

	if (r == -ENOENT && m->make_root)
		r = make_root(relay, m->root, &made);
	root = MAX_OF(r, -1);
	if (r < 0 || fstat(root, &st) < 0) {
		*why = (struct root_refusal){ root_path_error(-r), -r, strerror(-r) };
		return -1;
	}
	if (is_shared(relay, &st)) {
		*why = (struct root_refusal){ WERR_BAD_PATH, 0,
					      "is not for one tree alone: name a directory in it" };
		return -1;
	}
	if (m->only_ours && !made && !is_marked(root)) {
		r = is_empty(root);
		made = r > 0;
		if (r == 0) {
			*why = (struct root_refusal){
				WERR_EXISTS, 0,
				"is neither empty nor made by Berth, so nothing is written "
				"there: name another directory"
			};
			return -1;
		}
	}
	if (r >= 0 && made)
		r = mark(root);
	if (r < 0) {
		*why = (struct root_refusal){ root_path_error(-r), -r, strerror(-r) };
		return -1;
	}
	return steal_fd(&root);
}
