/*
 * Reading a layer: one walk of it in the order of trees, beside the base, which is in the same
 * order. What the layer names has changed or is gone; what it does not name is as it was, unless it
 * is in a directory that hides everything below it (opaque), where it is gone.
 *
 *     base      a  b/  b/x  b/y  c        layer    b/ (opaque)  b/y  c (whiteout)
 *     changes            b/x gone, b/y compared, c gone
 */
#include "workspace/overlay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/git.h"
#include "git/hidden.h"
#include "wire/hidden_paths.h"
#include "workspace/overlay_internal.h"

#define DEFAULT_ENTRIES 1000000u
#define DEFAULT_BYTES (16ULL << 30)
#define DEPTH_MAX 1000u
#define XATTR_PATH_MAX 64

/* A directory of the layer on the way. */
struct level {
	struct buf text;
	const char **names; /* in it, sorted */
	size_t count, next;
	size_t path_len;
	bool ruled;  /* its ignore rules count */
	bool opaque; /* nothing of the base is seen in it */
	bool in_git;
	bool left_out; /* by rules: only what the base has counts */
};

struct fetch {
	struct layer layer;
	struct manifest_cursor cursor;
	struct tree_entry base; /* the next of the base */
	bool has_base;
	struct ignore *ignore;
	const json_t *show;
	struct buf masks_text;
	const char **masks; /* in the order of trees */
	size_t mask_count;
	struct manifest_writer *changes;
	struct level levels[DEPTH_MAX];
	unsigned depth;
	int dir_fd; /* of the innermost level; -1: to be opened again */
	char path[TREE_PATH_MAX + 1];
	char target[TREE_PATH_MAX + 1];
};

/* ---- what is no part of the workspace ---- */

static int by_tree(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;

	return tree_path_compare(x, strlen(x), y, strlen(y));
}

static int load_masks(struct fetch *f, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	const char *at, *end;
	struct mask mask;
	int r;

	if (file_read(f->layer.run_fd, RESULTS_MASKED, &f->masks_text, MASKS_MAX, &why) < 0) {
		if (why.errnum == ENOENT)
			return 0;
		error_move(err, &why);
		return error_wrap(err, "the list of hidden paths");
	}
	at = buf_str(&f->masks_text);
	end = at + f->masks_text.len;
	f->masks = xcalloc(MASKS_COUNT_MAX, sizeof(*f->masks));
	while ((r = mask_next(&at, end, &mask, err)) > 0 && f->mask_count < MASKS_COUNT_MAX)
		f->masks[f->mask_count++] = mask.path;
	if (f->mask_count > 1)
		qsort(f->masks, f->mask_count, sizeof(*f->masks), by_tree);
	return r < 0 ? -1 : 0;
}

static bool is_mask(const struct fetch *f, const char *path, size_t len)
{
	size_t low = 0, high = f->mask_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order =
			tree_path_compare(f->masks[middle], strlen(f->masks[middle]), path, len);

		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* It, or a directory it is in. */
static bool is_masked(const struct fetch *f, const char *path, size_t len)
{
	if (f->mask_count == 0)
		return false;
	for (size_t i = 1; i <= len; i++)
		if ((i == len || path[i] == '/') && is_mask(f, path, i))
			return true;
	return false;
}

static bool is_in_git(const char *path, size_t len)
{
	return tree_path_is_within(path, len, ".git", 4);
}

/* ---- the base beside ---- */

static void next_base(struct fetch *f)
{
	f->has_base = manifest_next(&f->cursor, &f->base);
}

/* The place took it away; what it never saw it did not. */
static int emit_gone(struct fetch *f, const struct tree_entry *base, struct error *err)
{
	struct tree_entry gone = { .path = base->path, .path_len = base->path_len };

	if (is_in_git(base->path, base->path_len) || is_masked(f, base->path, base->path_len))
		return 0;
	return manifest_add(f->changes, &gone, err);
}

/* Everything of the base before the path. */
static int pass(struct fetch *f, size_t len, bool gone, struct error *err)
{
	while (f->has_base && tree_path_compare(f->base.path, f->base.path_len, f->path, len) < 0) {
		if (gone && emit_gone(f, &f->base, err) < 0)
			return -1;
		next_base(f);
	}
	return 0;
}

/* Everything of the base in the path. */
static int pass_within(struct fetch *f, size_t len, bool gone, struct error *err)
{
	while (f->has_base && tree_path_is_within(f->base.path, f->base.path_len, f->path, len)) {
		if (gone && emit_gone(f, &f->base, err) < 0)
			return -1;
		next_base(f);
	}
	return 0;
}

static bool base_has_within(const struct fetch *f, size_t len)
{
	return f->has_base && tree_path_is_within(f->base.path, f->base.path_len, f->path, len);
}

/* ---- what overlayfs writes down ---- */

/* Of the entry itself, never of what a link names. -1: it has none. */
static ssize_t attribute(const struct fetch *f, const char *name, const char *which, char *out,
			 size_t size)
{
	static const char *const spaces[] = { "user.overlay.", "trusted.overlay." };
	char path[XATTR_PATH_MAX], full[64];
	_cleanup_close_ int fd = openat(f->dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
		ssize_t n;

		snprintf(full, sizeof(full), "%s%s", spaces[i], which);
		n = getxattr(path, full, out, size);
		if (n >= 0 || errno == ERANGE)
			return n >= 0 ? n : (ssize_t)size;
	}
	return -1;
}

static bool is_whiteout(const struct fetch *f, const char *name, const struct stat *st)
{
	char value[4];

	if (S_ISCHR(st->st_mode))
		return st->st_rdev == 0;
	return S_ISREG(st->st_mode) && st->st_size == 0 &&
	       attribute(f, name, "whiteout", value, sizeof(value)) >= 0;
}

static bool is_opaque(const struct fetch *f, const char *name)
{
	char value[4];

	return attribute(f, name, "opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static bool is_redirect(const struct fetch *f, const char *name)
{
	char value[4];

	return attribute(f, name, "redirect", value, sizeof(value)) >= 0 ||
	       attribute(f, name, "metacopy", value, sizeof(value)) >= 0;
}

/* ---- levels ---- */

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(struct level *level)
{
	const char *name = buf_str(&level->text);

	level->names = xcalloc(level->count + 1, sizeof(*level->names));
	for (size_t i = 0; i < level->count; i++, name += strlen(name) + 1)
		level->names[i] = name;
	if (level->count > 1)
		qsort(level->names, level->count, sizeof(*level->names), by_bytes);
}

static int list_names(struct fetch *f, struct level *level, struct error *err)
{
	int fd = fcntl(f->dir_fd, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!dir) {
		close_fdp(&fd);
		return error_errno(err, errno, "list %s of the layer", f->path);
	}
	rewinddir(dir);
	while ((entry = readdir(dir))) {
		if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
			continue;
		if (f->layer.entries_left-- == 0) {
			closedir(dir);
			f->layer.entries_left = 0;
			return error_set(err, ERR_TOO_LARGE,
					 "the place wrote more files than one run may bring home "
					 "(berth serve --max-collect-files)");
		}
		level->count++;
		buf_append(&level->text, entry->d_name, strlen(entry->d_name) + 1);
	}
	closedir(dir);
	sort_names(level);
	return 0;
}

static bool has_file(int dir_fd, const char *name)
{
	return dir_fd >= 0 && faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* As the place sees them: of each name the layer's file, else the host's. */
static int take_rules(struct fetch *f, struct level *level, struct error *err)
{
	_cleanup_close_ int host = -1;
	int git, own;

	if (level->in_git)
		return 0;
	if (!level->opaque)
		host = path_open_dir(f->layer.host_fd, f->path[0] ? f->path : ".");
	git = has_file(f->dir_fd, ".gitignore") ? f->dir_fd : host;
	own = has_file(f->dir_fd, ".berthignore") ? f->dir_fd : host;
	if (ignore_enter_from(f->ignore, f->path, git, own, err) < 0)
		return -1;
	level->ruled = true;
	return 0;
}

/* The directory at f->path becomes the innermost level; its descriptor is taken. */
static int push(struct fetch *f, int fd, const struct level *like, struct error *err)
{
	struct level *level;

	close_fdp(&f->dir_fd);
	f->dir_fd = fd;
	if (f->depth == DEPTH_MAX)
		return error_set(err, ERR_TOO_LARGE, "directories are nested deeper than %u",
				 DEPTH_MAX);
	level = &f->levels[f->depth++];
	*level = *like;
	if (take_rules(f, level, err) < 0)
		return -1;
	return list_names(f, level, err);
}

static void drop_level(struct fetch *f)
{
	struct level *level = &f->levels[--f->depth];

	if (level->ruled)
		ignore_leave(f->ignore);
	free(level->names);
	buf_free(&level->text);
	close_fdp(&f->dir_fd);
}

static int pop(struct fetch *f, struct error *err)
{
	struct level *level = &f->levels[f->depth - 1];
	int r = 0;

	f->path[level->path_len] = '\0';
	/* What is not in it any more. */
	if (level->path_len > 0)
		r = pass_within(f, level->path_len, level->opaque, err);
	drop_level(f);
	return r;
}

static int reopen(struct fetch *f, const struct level *level, struct error *err)
{
	if (f->dir_fd >= 0)
		return 0;
	f->path[level->path_len] = '\0';
	f->dir_fd = path_open_dir(f->layer.upper_fd, level->path_len ? f->path : ".");
	return f->dir_fd < 0 ? error_errno(err, errno, "open %s of the layer", f->path) : 0;
}

/* ---- entries ---- */

static int visit_dir(struct fetch *f, const struct level *in, const char *name, size_t len,
		     const struct stat *st, bool left_out, struct error *err)
{
	bool was_dir =
		base_has_within(f, len) && f->base.path_len == len && f->base.type == TREE_DIR;
	bool was_other = base_has_within(f, len) && !was_dir && f->base.path_len == len;
	struct level like = { .path_len = len, .in_git = in->in_git, .left_out = left_out };
	struct tree_entry entry = { 0 };
	int fd = path_open_dir(f->dir_fd, name);

	if (fd < 0) {
		layer_refuse(&f->layer, f->path, "it cannot be read");
		return pass_within(f, len, false, err);
	}
	if (is_redirect(f, name)) {
		close(fd);
		layer_refuse(&f->layer, f->path, "it was renamed in a way that is not supported");
		return pass_within(f, len, false, err);
	}
	/* Over something that is no directory it hides it, marked or not. */
	like.opaque = in->opaque || was_other || is_opaque(f, name);
	tree_entry_from_stat(st, &entry);
	entry.path = f->path;
	entry.path_len = (uint32_t)len;
	entry.mode &= 0777;
	if (!like.in_git && !was_dir && !left_out && manifest_add(f->changes, &entry, err) < 0) {
		close(fd);
		return -1;
	}
	if (was_dir || was_other)
		next_base(f);
	return push(f, fd, &like, err);
}

static int visit_link(struct fetch *f, const char *name, size_t len, const struct stat *st,
		      const struct tree_entry *base, struct error *err)
{
	ssize_t n = readlinkat(f->dir_fd, name, f->target, sizeof(f->target) - 1);
	struct tree_entry entry = { 0 };

	if (n <= 0) {
		layer_refuse(&f->layer, f->path, "the link cannot be read");
		return 0;
	}
	f->target[n] = '\0';
	tree_entry_from_stat(st, &entry);
	entry.path = f->path;
	entry.path_len = (uint32_t)len;
	entry.target = f->target;
	entry.target_len = (uint32_t)n;
	if (base && tree_entry_same_content(base, &entry))
		return 0;
	return manifest_add(f->changes, &entry, err);
}

static int visit_file(struct fetch *f, const char *name, size_t len, const struct stat *st,
		      const struct tree_entry *base, struct error *err)
{
	struct tree_entry entry = { 0 };
	int r;

	tree_entry_from_stat(st, &entry);
	entry.path = f->path;
	entry.path_len = (uint32_t)len;
	entry.mode &= 0777;
	r = layer_file(&f->layer, f->dir_fd, name, st, base, &entry, err);
	return r > 0 ? manifest_add(f->changes, &entry, err) : r;
}

/* What is no directory and no whiteout. */
static int visit_other(struct fetch *f, const char *name, size_t len, const struct stat *st,
		       bool left_out, struct error *err)
{
	bool has_base = base_has_within(f, len) && f->base.path_len == len;
	struct tree_entry was = f->base;
	const struct tree_entry *base = has_base ? &was : NULL;
	int r;

	if (has_base)
		next_base(f);
	if (left_out && !has_base)
		return 0;
	if (S_ISREG(st->st_mode) && is_redirect(f, name)) {
		layer_refuse(&f->layer, f->path, "its content is not in the layer");
		return pass_within(f, len, false, err);
	}
	if (S_ISLNK(st->st_mode))
		r = visit_link(f, name, len, st, base, err);
	else if (S_ISREG(st->st_mode))
		r = visit_file(f, name, len, st, base, err);
	else {
		/* What was there stays on the host. */
		layer_refuse(&f->layer, f->path, "it is not a file, directory or link");
		return pass_within(f, len, false, err);
	}
	return r < 0 ? -1 : pass_within(f, len, true, err);
}

static bool is_host_dir(const struct fetch *f)
{
	_cleanup_close_ int fd = path_open_dir(f->layer.host_fd, f->path);

	return fd >= 0;
}

static int visit_git(struct fetch *f, const struct level *in, const char *name, size_t len,
		     const struct stat *st, struct error *err)
{
	bool comes = git_path_comes_back(f->path, len);

	if (is_whiteout(f, name, st))
		return layer_git_gone(&f->layer, f->path, err);
	if (S_ISDIR(st->st_mode)) {
		/* Before the files that are in it again; a file of that name has no room. */
		if ((in->opaque || is_opaque(f, name)) && is_host_dir(f) &&
		    layer_git_gone(&f->layer, f->path, err) < 0)
			return -1;
		return visit_dir(f, in, name, len, st, false, err);
	}
	if (!comes)
		return 0;
	if (S_ISREG(st->st_mode) && !is_redirect(f, name))
		return layer_git_file(&f->layer, f->dir_fd, name, st, f->path, err);
	layer_refuse(&f->layer, f->path, "it is no file");
	return len == strlen(".git") ? layer_git_gone(&f->layer, f->path, err) : 0;
}

/*
 * Whether something was done in the .git of a repository inside, at f->path. What is hidden from
 * the place is in the layer too, and looking (git status) renews the index: neither is worth
 * telling.
 */
static bool was_worked_in(const struct fetch *f, const char *name)
{
	int fd = path_open_dir(f->dir_fd, name);
	DIR *dir = fd >= 0 && !is_opaque(f, name) ? fdopendir(fd) : NULL;
	struct dirent *entry;
	bool worked = !dir;

	while (!worked && (entry = readdir(dir))) {
		_cleanup_free_ char *path = xasprintf("%s/%s", f->path, entry->d_name);

		worked = !streq(entry->d_name, ".") && !streq(entry->d_name, "..") &&
			 !streq(entry->d_name, "index") && !is_mask(f, path, strlen(path));
	}
	if (dir)
		closedir(dir);
	else
		close_fdp(&fd);
	return worked;
}

/* Named as what is hidden from the place. */
static bool stays(const struct fetch *f, size_t len, bool is_dir)
{
	return hidden_stays(f->show, f->path, len, is_dir);
}

static int visit_work(struct fetch *f, const struct level *in, const char *name, size_t len,
		      const struct stat *st, struct error *err)
{
	bool left_out;

	if (pass(f, len, in->opaque, err) < 0)
		return -1;
	if (is_masked(f, f->path, len)) {
		if (!is_whiteout(f, name, st) && stays(f, len, S_ISDIR(st->st_mode)))
			layer_refuse(&f->layer, f->path, HIDDEN_STAYS);
		return pass_within(f, len, false, err);
	}
	if (git_inside(f->path, len) == len) {
		if (was_worked_in(f, name))
			layer_refuse(&f->layer, f->path, GIT_INSIDE_REASON);
		return pass_within(f, len, false, err);
	}
	if (is_whiteout(f, name, st))
		return pass_within(f, len, true, err);
	left_out = in->left_out || ignore_matches(f->ignore, f->path, len, S_ISDIR(st->st_mode));
	if (!left_out && stays(f, len, S_ISDIR(st->st_mode))) {
		left_out = true;
		if (!base_has_within(f, len))
			layer_refuse(&f->layer, f->path, HIDDEN_STAYS);
	}
	if (!S_ISDIR(st->st_mode))
		return visit_other(f, name, len, st, left_out, err);
	return left_out && !base_has_within(f, len)
		       ? 0
		       : visit_dir(f, in, name, len, st, left_out, err);
}

static int visit(struct fetch *f, struct level *level, const char *name, struct error *err)
{
	size_t start = level->path_len ? level->path_len + 1 : 0, len = start + strlen(name);
	struct level in = *level;
	struct stat st;

	if (layer_tick(&f->layer, err) < 0)
		return -1;
	if (len > TREE_PATH_MAX) {
		layer_refuse(&f->layer, name, "its path is too long");
		return 0;
	}
	if (level->path_len)
		f->path[level->path_len] = '/';
	memcpy(f->path + start, name, len - start + 1);
	if (fstatat(f->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? 0
			       : error_errno(err, errno, "look at %s of the layer", f->path);
	if (start == 0 && streq(name, ".git") && !has_file(f->layer.host_fd, name)) {
		layer_refuse(&f->layer, f->path, GIT_MADE_REASON);
		return 0;
	}
	if (start == 0 && streq(name, ".git"))
		in.in_git = true;
	if (in.in_git)
		return is_masked(f, f->path, len) ? 0 : visit_git(f, &in, name, len, &st, err);
	return visit_work(f, &in, name, len, &st, err);
}

static int walk(struct fetch *f, struct error *err)
{
	int fd = path_open_dir(f->layer.upper_fd, ".");

	if (fd < 0)
		return error_errno(err, errno, "open the layer");
	if (push(f, fd, &(struct level){ 0 }, err) < 0)
		return -1;
	while (f->depth > 0) {
		struct level *level = &f->levels[f->depth - 1];

		if (level->next == level->count) {
			if (pop(f, err) < 0)
				return -1;
		} else if (reopen(f, level, err) < 0 ||
			   visit(f, level, level->names[level->next++], err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int begin(struct fetch *f, struct error *err)
{
	_cleanup_buf_ struct buf rules = { 0 };

	if (load_masks(f, err) < 0 || layer_git_begin(&f->layer, err) < 0 ||
	    hidden_rules(f->layer.host_fd, &rules, err) < 0)
		return -1;
	ignore_add_global(f->ignore, buf_str(&rules), rules.len);
	next_base(f);
	return 0;
}

int overlay_fetch(int upper_fd, const struct manifest *base, int host_fd, int run_fd,
		  const struct overlay_limits *limits, struct manifest_writer *changes,
		  json_t *refused, struct error *err)
{
	struct fetch *f = xcalloc(1, sizeof(*f));
	int r;

	f->layer = (struct layer){
		.upper_fd = upper_fd,
		.host_fd = host_fd,
		.run_fd = run_fd,
		.entries_left =
			limits && limits->max_entries ? limits->max_entries : DEFAULT_ENTRIES,
		.bytes_left = limits && limits->max_bytes ? limits->max_bytes : DEFAULT_BYTES,
		.cancel_fd = limits ? limits->cancel_fd : -1,
		.refused = refused,
	};
	f->cursor = (struct manifest_cursor){ .m = base };
	f->changes = changes;
	f->dir_fd = -1;
	f->show = limits ? limits->show : NULL;
	f->ignore = ignore_new();
	r = begin(f, err) < 0 ? -1 : walk(f, err);
	while (f->depth > 0)
		drop_level(f);
	ignore_free(f->ignore);
	free(f->masks);
	buf_free(&f->masks_text);
	buf_free(&f->layer.block);
	free(f);
	return r;
}
