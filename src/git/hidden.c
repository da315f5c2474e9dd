#include "git/hidden.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"
#include "filetree/ignore.h"
#include "git/known_names.h"
#include "git/repo_config.h"

#define EXCLUDE_MAX ((size_t)1 << 20)
#define TRACKED_MAX ((size_t)32 << 20)

static int by_tree(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;

	return tree_path_compare(x, strlen(x), y, strlen(y));
}

/* The names as patterns of git's own, so that it lists only what matters. */
static char **list_args(void)
{
	static const char *const fixed[] = { "ls-files", "-z", "--cached", "--ignored",
					     "--exclude-standard" };
	char **args = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		strv_push(&args, xstrdup(fixed[i]));
	for (const struct name_pattern *name = NAMES_HIDDEN; name->text; name++)
		strv_push(&args, xasprintf("--exclude=%s", name->text));
	return args;
}

static void index_paths(struct hidden *h)
{
	const char *p = buf_str(&h->text);

	for (size_t at = 0; at < h->text.len; at += strlen(h->text.data + at) + 1)
		h->count++;
	h->paths = xcalloc(h->count + 1, sizeof(*h->paths));
	for (size_t i = 0; i < h->count; i++, p += strlen(p) + 1)
		h->paths[i] = p;
	if (h->count > 1)
		qsort(h->paths, h->count, sizeof(*h->paths), by_tree);
}

static int list_tracked(const struct git_repo *repo, struct buf *out, struct error *err)
{
	_cleanup_strv_ char **args = list_args();
	struct git_call call = {
		.repo = repo,
		.args = (const char *const *)args,
		.max_output = TRACKED_MAX,
	};

	buf_reset(out);
	return git_run(&call, out, NULL, err);
}

int hidden_load(struct hidden *h, int root_fd, const char *path, const json_t *show, int cancel_fd,
		struct git_seen *seen, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	bool known = seen && git_seen_is_fresh(seen->tracked_at);

	*h = (struct hidden){ .show = show };
	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return 0;
	if (known)
		buf_append(&h->text, buf_str(&seen->tracked), seen->tracked.len);
	else if (list_tracked(&repo, &h->text, err) < 0)
		return -1;
	if (seen && !known) {
		buf_reset(&seen->tracked);
		buf_append(&seen->tracked, buf_str(&h->text), h->text.len);
		seen->tracked_at = boottime_ms();
	}
	index_paths(h);
	return 0;
}

/* The first one not before the path is the path itself or in it, if any is. */
static bool is_tracked(const struct hidden *t, const char *path, size_t len)
{
	size_t low = 0, high = t->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const char *p = t->paths[middle];

		if (tree_path_compare(p, strlen(p), path, len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->count &&
	       tree_path_is_within(t->paths[low], strlen(t->paths[low]), path, len);
}

void hidden_free(struct hidden *h)
{
	buf_free(&h->text);
	free(h->paths);
	*h = (struct hidden){ 0 };
}

const char *hidden_by_name(void *arg, const char *path, size_t len, bool is_dir)
{
	(void)arg;
	return names_hide(path, len, is_dir);
}

bool hidden_is_shown(const json_t *show, const char *path, size_t len)
{
	const json_t *one;
	size_t i;

	json_array_foreach (show, i, one) {
		const char *shown = json_string_value(one);

		if (tree_path_is_within(path, len, shown, strlen(shown)))
			return true;
	}
	return false;
}

bool hidden_keeps(void *arg, const char *path, size_t len)
{
	const struct hidden *h = arg;
	const json_t *one;
	size_t i;

	if (hidden_is_shown(h->show, path, len) || is_tracked(h, path, len))
		return true;
	/* The directories on the way to what is shown. */
	json_array_foreach (h->show, i, one) {
		const char *shown = json_string_value(one);

		if (tree_path_is_within(shown, strlen(shown), path, len))
			return true;
	}
	return false;
}

bool hidden_stays(const json_t *show, const char *path, size_t len, bool is_dir)
{
	return names_hide_within(path, len, is_dir) && !hidden_is_shown(show, path, len);
}

/* ---- one path, by the rules on its way ---- */

/* Where the repository's shared files are: .git itself, or what the file .git leads to. */
static int open_common_dir(int root_fd)
{
	_cleanup_buf_ struct buf text = { 0 };
	int fd = path_open_dir(root_fd, ".git");

	if (fd >= 0 || errno != ENOTDIR)
		return fd;
	if (file_read(root_fd, ".git", &text, 8192, NULL) < 0 || text.len < 9 ||
	    memcmp(text.data, "gitdir: ", 8) != 0)
		return -1;
	text.data[strcspn(text.data, "\n")] = '\0';

	_cleanup_close_ int own = openat(root_fd, text.data + 8, O_PATH | O_DIRECTORY | O_CLOEXEC);

	buf_reset(&text);
	if (own < 0 || file_read(own, "commondir", &text, 8192, NULL) < 0)
		return steal_fd(&own);
	text.data[strcspn(text.data, "\n")] = '\0';
	return openat(own, text.data, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int hidden_rules(int root_fd, struct buf *out, struct error *err)
{
	_cleanup_close_ int git = open_common_dir(root_fd);
	struct error why = { 0 };

	if (git < 0 || file_read(git, "info/exclude", out, EXCLUDE_MAX, &why) == 0)
		return 0;
	if (why.errnum == ENOENT || why.errnum == ENOTDIR)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "info/exclude of the repository");
}

static int ask_rules(struct ignore *ignore, int root_fd, const char *path, struct error *err)
{
	size_t len = strlen(path), at = 0;

	for (;;) {
		_cleanup_free_ char *dir = xstrndup(path, at ? at - 1 : 0);
		_cleanup_close_ int fd = path_open_dir(root_fd, at ? dir : ".");
		const char *slash = memchr(path + at, '/', len - at);
		size_t end = slash ? (size_t)(slash - path) : len;

		/* A directory that is not there has no rules, and neither has what is in it. */
		if (fd >= 0 && ignore_enter(ignore, dir, fd, err) < 0)
			return -1;
		if (ignore_matches(ignore, path, end, slash != NULL))
			return 1;
		if (!slash)
			return 0;
		at = end + 1;
	}
}

int hidden_now(int root_fd, const char *path, struct error *err)
{
	_cleanup_buf_ struct buf rules = { 0 };
	struct ignore *ignore;
	int r;

	if (names_hide_within(path, strlen(path), false))
		return 1;
	if (hidden_rules(root_fd, &rules, err) < 0)
		return -1;
	ignore = ignore_new();
	ignore_add_global(ignore, buf_str(&rules), rules.len);
	r = ask_rules(ignore, root_fd, path, err);
	ignore_free(ignore);
	return r;
}
