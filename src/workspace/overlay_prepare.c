/*
 * Before a place has the tree under a layer: may it, and what of it must stay out of sight.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <dirent.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/git.h"
#include "wire/hidden_paths.h"
#include "git/hidden.h"
#include "workspace/overlay.h"
#include "workspace/stage_internal.h"

#define MOUNTS_TEXT_MAX ((size_t)16 << 20)

static int refuse(struct error *err, const char *path, const char *why)
{
	return error_set(err, ERR_UNPROCESSABLE,
			 "%.200s cannot be shown by an overlay: %s; copy it", path, why);
}

/* In mountinfo blanks and the like are octal numbers. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		unsigned value;

		if (from[0] == '\\' && sscanf(from + 1, "%3o", &value) == 1) {
			*to = (char)value;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* What is mounted in it would not be seen, and what it covers would. */
static int check_mounts(const char *path, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	size_t len = strlen(path);
	char *rest, *line;

	if (fd < 0)
		return error_errno(err, errno, "open /proc/self/mountinfo");
	if (fd_read_all(fd, &text, MOUNTS_TEXT_MAX, err) < 0)
		return -1;
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n"))) {
		char *point = NULL;

		for (int i = 0; i < 5; i++)
			point = strsep(&line, " ");
		if (!point)
			continue;
		unescape(point);
		if (strncmp(point, path, len) == 0 && point[len] == '/')
			return refuse(err, path, "something is mounted in it");
	}
	return 0;
}

/* Those that never can; what else cannot is told by who tries. */
static int check_file_system(int fd, const char *path, struct error *err)
{
	static const unsigned never[] = { 0x6969,     0x517b, 0xff534d42, 0xfe534d42, 0x65735546,
					  0x01021997, 0x0187, 0x5346414f, 0x00c36400 };
	const unsigned overlayfs = 0x794c7630;
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return error_errno(err, errno, "look at the file system of %s", path);
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if ((unsigned)st.f_type == never[i])
			return refuse(err, path, "it is on a network or user-space file system");
	/* Its user ids cannot be translated, which an ordinary user's place does without. */
	if ((unsigned)st.f_type == overlayfs && geteuid() == 0)
		return refuse(err, path, "it is on an overlay itself");
	return 0;
}

static int check_repository(int fd, const char *path, struct error *err)
{
	static const char *const elsewhere[] = { ".git/commondir", ".git/objects/info/alternates" };
	static const char *const real[] = { ".git/objects", ".git/refs" };
	struct stat st;

	if (fstatat(fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "look at %s/.git", path);
	if (!S_ISDIR(st.st_mode))
		return refuse(err, path, "its repository is elsewhere");
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
		if (fstatat(fd, elsewhere[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			return refuse(err, path, "part of its repository is elsewhere");
	for (size_t i = 0; i < ARRAY_SIZE(real); i++)
		if (fstatat(fd, real[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
			return refuse(err, path, "part of its repository is elsewhere");
	return 0;
}

int overlay_suits(const char *path, struct error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	if (check_file_system(fd, path, err) < 0 || check_repository(fd, path, err) < 0)
		return -1;
	return check_mounts(path, err);
}

/* ---- what is hidden ---- */

struct hiding {
	struct buf list;
	unsigned count;
	struct hidden hidden;
};

static void hide(struct hiding *h, enum mask_kind kind, const char *path, const char *content)
{
	h->count++;
	mask_add(&h->list, kind, path, content);
}

/* Asked about every path that rules or names hide; what is seen all the same is not masked. */
static bool hide_unless_kept(void *arg, const char *path, size_t len)
{
	struct hiding *h = arg;

	if (hidden_keeps(&h->hidden, path, len))
		return true;
	if (h->count < MASKS_COUNT_MAX)
		hide(h, MASK_HIDDEN, path, NULL);
	else
		h->count++;
	return false;
}

struct walking {
	struct hiding *hiding;
	int cancel_fd;
};

static int go_on(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
		 struct error *err)
{
	const struct walking *w = arg;

	(void)dir_fd;
	(void)name;
	if (w->hiding->count > MASKS_COUNT_MAX)
		return error_set(err, ERR_UNPROCESSABLE,
				 "more than %u ignored paths would have to be hidden one by one; "
				 "copy the workspace",
				 MASKS_COUNT_MAX);
	if (w->cancel_fd >= 0 && latch_is_set(w->cancel_fd))
		return error_set(err, ERR_CANCELLED, "cancelled");
	/* What is below it is hidden with it. */
	if (git_inside_hidden(entry->path, entry->path_len) == entry->path_len)
		hide(w->hiding, MASK_HIDDEN, entry->path, NULL);
	return 0;
}

static int hide_ignored(struct hiding *h, int root_fd, int cancel_fd, struct error *err)
{
	_cleanup_buf_ struct buf rules = { 0 };
	struct ignore *ignore = ignore_new();
	struct walking walking = { h, cancel_fd };
	const struct tree_walk_options options = {
		.ignore = ignore,
		.skip_git = true,
		.hides = hidden_by_name,
		.keeps = hide_unless_kept,
		.arg = h,
	};
	int r = hidden_rules(root_fd, &rules, err);

	if (r == 0) {
		ignore_add_global(ignore, buf_str(&rules), rules.len);
		r = tree_walk(root_fd, &options, go_on, &walking, err);
	}
	ignore_free(ignore);
	return r;
}

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (streq(name, *names))
			return true;
	return false;
}

/* Of a directory of the repository only these names are seen, and of .git what git_shows.
 * NULL-terminated. */
static int show_only(struct hiding *h, int root_fd, const char *dir, const char *const *names,
		     struct error *err)
{
	int fd = path_open_dir(root_fd, dir);
	DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!list) {
		int errnum = errno;

		close_fdp(&fd);
		return errnum == ENOENT ? 0 : error_errno(err, errnum, "open %s", dir);
	}
	while ((entry = readdir(list))) {
		const char *name = entry->d_name;
		_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

		if (!streq(name, ".") && !streq(name, "..") && !is_one_of(name, names) &&
		    !(streq(dir, ".git") && git_shows(name, strlen(name))))
			hide(h, MASK_HIDDEN, path, NULL);
	}
	closedir(list);
	return 0;
}

static int hide_of_repository(struct hiding *h, int root_fd, const char *path, int cancel_fd,
			      struct git_seen *seen, struct error *err)
{
	/* Others are put over these. */
	static const char *const own[] = { "config", "hooks", NULL };
	static const char *const refs[] = { "heads", "tags", "remotes", "bisect", NULL };
	static const char *const info[] = { "attributes", "exclude", "sparse-checkout", NULL };
	_cleanup_free_ char *config = NULL;
	struct stat st;

	if (fstatat(root_fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "look at .git");
	if (show_only(h, root_fd, ".git", own, err) < 0 ||
	    show_only(h, root_fd, ".git/refs", refs, err) < 0 ||
	    show_only(h, root_fd, ".git/info", info, err) < 0 ||
	    git_place_config(root_fd, path, cancel_fd, seen, &config, err) < 0)
		return -1;
	hide(h, MASK_FILE, ".git/config", config);
	hide(h, MASK_EMPTY, ".git/hooks", NULL);
	return 0;
}

static int write_list(const struct results *results, const char *run_id, const struct buf *list,
		      char **path, struct error *err)
{
	_cleanup_close_ int run_fd = -1;
	char link[64], dir[TREE_PATH_MAX + 1];
	ssize_t n;

	if (list->len > MASKS_MAX)
		return error_set(err, ERR_UNPROCESSABLE,
				 "too many ignored paths would have to be hidden one by one; copy "
				 "the workspace");
	if (results_dir(results, run_id, true, &run_fd, err) < 0 ||
	    file_replace_soon(run_fd, RESULTS_MASKED, buf_str(list), list->len, 0600, err) < 0)
		return -1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", run_fd);
	n = readlink(link, dir, sizeof(dir) - 1);
	if (n <= 0)
		return error_errno(err, errno, "find the directory of run %s", run_id);
	dir[n] = '\0';
	*path = path_join(dir, RESULTS_MASKED);
	return 0;
}

int overlay_prepare(const struct results *results, struct workspace_state *state, int cancel_fd,
		    char **masks_path, struct error *err)
{
	_cleanup_close_ int root_fd = open(state->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct hiding h = { 0 };
	int r = -1;

	*masks_path = NULL;
	if (root_fd < 0)
		return error_errno(err, errno, "open %s", state->path);
	if (!state->seen)
		state->seen = git_seen_new();
	/* Where Berth keeps what it brings home, in a tree that is no repository. */
	hide(&h, MASK_HIDDEN, ".berth", NULL);
	if (overlay_suits(state->path, err) == 0 &&
	    hidden_load(&h.hidden, root_fd, state->path, state->show, cancel_fd, state->seen,
			err) == 0 &&
	    hide_ignored(&h, root_fd, cancel_fd, err) == 0 &&
	    hide_of_repository(&h, root_fd, state->path, cancel_fd, state->seen, err) == 0)
		r = write_list(results, state->run_id, &h.list, masks_path, err);
	hidden_free(&h.hidden);
	buf_free(&h.list);
	return r;
}
