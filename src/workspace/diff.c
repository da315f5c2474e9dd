/*
 * results_diff: what the place changed, as git diff shows it. Written here, since git need not be
 * installed and must not read a workspace's config to answer. Directories are not told, as in git.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"
#include "workspace/apply_internal.h"
#include "workspace/diff_lines.h"
#include "workspace/merge.h"

/* A larger text is told by one line. */
#define TEXT_MAX ((size_t)4 << 20)
/* Git's rule for what is binary: a NUL near the beginning. */
#define BINARY_LOOK ((size_t)8000)
#define FLUSH_AT ((size_t)65536)

struct diff {
	const struct results *results;
	struct changes_view view;
	int workspace_fd; /* -1: it is gone */
	int staging_fd;   /* -1: nothing is kept there */
	int out_fd;
	struct buf out;
	uint32_t number;
};

/* One side of one file. */
struct side {
	struct buf text;
	bool known, large;
};

static int flush(struct diff *d, bool all, struct error *err)
{
	if (d->out.len < (all ? 1 : FLUSH_AT))
		return 0;
	if (fd_write_all(d->out_fd, d->out.data, d->out.len, err) < 0)
		return error_wrap(err, "write the diff");
	buf_reset(&d->out);
	return 0;
}

/* As git quotes names that are not plain. */
static void put_name(struct buf *out, const char *prefix, const char *path)
{
	static const char escapes[] = "\a\b\t\n\v\f\r\"\\", letters[] = "abtnvfr\"\\";
	bool plain = true;

	for (const char *p = path; *p && plain; p++)
		plain = (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f && *p != '"' &&
			*p != '\\';
	if (plain) {
		buf_puts(out, prefix);
		buf_puts(out, path);
		return;
	}
	buf_putc(out, '"');
	buf_puts(out, prefix);
	for (const char *p = path; *p; p++) {
		const char *known = strchr(escapes, *p);

		if (known)
			buf_printf(out, "\\%c", letters[known - escapes]);
		else if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			buf_printf(out, "\\%03o", (unsigned char)*p);
		else
			buf_putc(out, *p);
	}
	buf_putc(out, '"');
}

static void put_line(struct buf *out, const char *before, const char *prefix, const char *path)
{
	buf_puts(out, before);
	put_name(out, prefix, path);
	buf_putc(out, '\n');
}

static unsigned git_mode(const struct tree_entry *e)
{
	if (e->type == TREE_SYMLINK)
		return 0120000;
	return e->mode & 0100 ? 0100755 : 0100644;
}

static bool has_text(const struct tree_entry *e)
{
	return e->type == TREE_FILE || e->type == TREE_SYMLINK;
}

static bool has_hash_of(const struct tree_entry *e, const struct buf *text)
{
	uint8_t sha256[TREE_HASH_SIZE];

	if (!(e->flags & TREE_HAS_HASH))
		return text->len == e->size;
	sha256_once(text->data, text->len, sha256);
	return memcmp(sha256, e->sha256, TREE_HASH_SIZE) == 0;
}

/* Takes the descriptor. What was read counts only if it is what the entry says. */
static bool read_side(int fd, const struct tree_entry *e, struct side *side)
{
	_cleanup_close_ int mine = fd;

	if (mine < 0 || fd_read_all(mine, &side->text, TEXT_MAX, NULL) < 0)
		return false;
	buf_reserve(&side->text, 0);
	side->known = has_hash_of(e, &side->text);
	if (!side->known)
		buf_reset(&side->text);
	return side->known;
}

static int open_plain(int dir_fd, const char *name)
{
	return dir_fd < 0 ? -1
			  : openat(dir_fd, name,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* The host's file while it is as staged, or what was displaced. */
static void load_before(struct diff *d, const struct tree_entry *base, struct side *side)
{
	char kept[STAGED_NAME_SIZE];
	struct host_view now;
	const char *name;

	if (base->type == TREE_SYMLINK) {
		buf_append(&side->text, base->target, base->target_len);
		side->known = true;
		return;
	}
	side->large = base->size > TEXT_MAX;
	if (side->large)
		return;
	staged_name(d->number, kept);
	if (d->workspace_fd >= 0) {
		_cleanup_close_ int parent = host_open_parent(d->workspace_fd, base->path, &name);

		/* Without a hash only its state tells that it is the one. */
		if (parent >= 0 && host_view(parent, name, &now) == 0 &&
		    now.entry.type == TREE_FILE &&
		    ((base->flags & TREE_HAS_HASH) || merge_is_base(base, &now.entry)) &&
		    read_side(open_plain(parent, name), base, side))
			return;
	}
	read_side(open_plain(d->staging_fd, kept), base, side);
}

static int load_after(struct diff *d, const struct tree_entry *place, struct side *side,
		      struct error *err)
{
	int fd;

	if (place->type == TREE_SYMLINK) {
		buf_append(&side->text, place->target, place->target_len);
		side->known = true;
		return 0;
	}
	side->large = place->size > TEXT_MAX;
	if (side->large)
		return 0;
	fd = blob_open(d->view.run_fd, place->sha256, err);
	if (fd < 0)
		return -1;
	read_side(fd, place, side);
	return 0;
}

static bool is_binary(const struct buf *text)
{
	return text->len && memchr(text->data, '\0', MIN_OF(text->len, BINARY_LOOK));
}

static void put_bodies(struct diff *d, const char *path, const struct tree_entry *before,
		       const struct tree_entry *after, const struct side *a, const struct side *b)
{
	_cleanup_buf_ struct buf hunks = { 0 };
	const char *old = has_text(before) ? "a/" : NULL, *new = has_text(after) ? "b/" : NULL;

	if ((old && !a->known && !a->large) || (new && !b->known && !b->large)) {
		put_line(&d->out, "Its former content is no longer kept: ", "", path);
		return;
	}
	if (a->large || b->large || is_binary(&a->text) || is_binary(&b->text) ||
	    !diff_hunks(&hunks, (struct diff_text){ buf_str(&a->text), a->text.len },
			(struct diff_text){ buf_str(&b->text), b->text.len })) {
		buf_puts(&d->out, "Binary files ");
		put_name(&d->out, old ? old : "", old ? path : "/dev/null");
		buf_puts(&d->out, " and ");
		put_name(&d->out, new ? new : "", new ? path : "/dev/null");
		buf_puts(&d->out, " differ\n");
		return;
	}
	if (!hunks.len)
		return;
	put_line(&d->out, "--- ", old ? old : "", old ? path : "/dev/null");
	put_line(&d->out, "+++ ", new ? new : "", new ? path : "/dev/null");
	buf_append(&d->out, hunks.data, hunks.len);
}

static int put_file(struct diff *d, const char *path, const struct tree_entry *before,
		    const struct tree_entry *after, struct error *err)
{
	struct side a = { 0 }, b = { 0 };
	int r = 0;

	buf_puts(&d->out, "diff --git ");
	put_name(&d->out, "a/", path);
	buf_putc(&d->out, ' ');
	put_name(&d->out, "b/", path);
	buf_putc(&d->out, '\n');
	if (!has_text(before))
		buf_printf(&d->out, "new file mode %06o\n", git_mode(after));
	else if (!has_text(after))
		buf_printf(&d->out, "deleted file mode %06o\n", git_mode(before));
	else if (git_mode(before) != git_mode(after))
		buf_printf(&d->out, "old mode %06o\nnew mode %06o\n", git_mode(before),
			   git_mode(after));
	if (has_text(before))
		load_before(d, before, &a);
	if (has_text(after))
		r = load_after(d, after, &b, err);
	if (r == 0)
		put_bodies(d, path, before, after, &a, &b);
	buf_free(&a.text);
	buf_free(&b.text);
	return r < 0 ? -1 : flush(d, false, err);
}

static int put_change(void *arg, const struct change *change, struct error *err)
{
	static const struct tree_entry none;
	struct diff *d = arg;
	const struct tree_entry *after = &change->entry;
	struct tree_entry before;
	int r = 0;

	change_base(d->view.base, after, &before);
	if (change->kind == CHANGE_TYPE) { /* git tells it as two */
		if (has_text(&before))
			r = put_file(d, after->path, &before, &none, err);
		if (r == 0 && has_text(after))
			r = put_file(d, after->path, &none, after, err);
	} else if (change->kind == CHANGE_MODE && git_mode(&before) == git_mode(after)) {
		r = 0; /* bits git does not know */
	} else if (has_text(&before) || has_text(after)) {
		r = put_file(d, after->path, &before, after, err);
	}
	d->number++;
	return r;
}

static void diff_close(struct diff *d)
{
	changes_close(&d->view);
	close_fdp(&d->workspace_fd);
	close_fdp(&d->staging_fd);
	buf_free(&d->out);
}

int results_diff(const struct results *results, const char *run_id, int fd, struct error *err)
{
	_cleanup_(diff_close) struct diff d = { .results = results,
						.view = { .run_fd = -1 },
						.workspace_fd = -1,
						.staging_fd = -1,
						.out_fd = fd };
	_cleanup_(workspace_state_clear) struct workspace_state state = { 0 };

	if (workspace_state_load(results, run_id, &state, err) < 0 ||
	    changes_open(results, run_id, &d.view, err) < 0)
		return -1;
	d.workspace_fd = open(state.worktree ? state.worktree : state.path,
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d.workspace_fd >= 0)
		d.staging_fd = staging_look(d.workspace_fd, run_id);
	if (changes_walk(d.view.base, d.view.changes, d.view.journal, put_change, &d, err) < 0)
		return -1;
	return flush(&d, true, err);
}
