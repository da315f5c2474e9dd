#include "git/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/cli.h"

#define LIST_MAX (1U << 30)

void index_entries_clear(struct index_entries *entries)
{
	free(entries->items);
	buf_free(&entries->text);
	*entries = (struct index_entries){ 0 };
}

static int bad_index(struct error *err, const char *what)
{
	return error_set(err, ERR_UNPROCESSABLE, "the index has %s", what);
}

/* As git's own verify_path: nothing that could be, or look like, a repository's own directory. */
static bool path_is_safe(const char *path)
{
	if (!tree_path_is_valid(path, strlen(path)))
		return false;
	for (const char *part = path; part; part = strchr(part, '/')) {
		part += *part == '/';

		size_t len = strcspn(part, "/");

		if (len == 4 && strncasecmp(part, ".git", 4) == 0)
			return false;
		if (!len)
			return false;
	}
	return true;
}

static bool mode_is_known(unsigned mode)
{
	return mode == 0100644 || mode == 0100755 || mode == 0120000 || mode == 0160000;
}

/* "100644 <oid> 0\t<path>" */
static int parse_entry(const char *line, bool sha256, struct index_entry *out, struct error *err)
{
	size_t hex = sha256 ? 64 : 40;
	char *end;

	out->mode = (unsigned)strtoul(line, &end, 8);
	if (end != line + 6 || *end != ' ' || strlen(end) < hex + 5 || end[hex + 1] != ' ' ||
	    end[hex + 3] != '\t' || !git_oid_is_valid(end + 1, hex, sha256))
		return bad_index(err, "an entry that git prints in an unknown way");
	memcpy(out->oid, end + 1, hex);
	out->oid[hex] = '\0';
	out->stage = (unsigned)(end[hex + 2] - '0');
	out->path = end + hex + 4;
	if (!mode_is_known(out->mode) || out->stage > 3)
		return bad_index(err, "an entry of an unknown kind");
	if (!path_is_safe(out->path))
		return bad_index(err, "an entry with a path that git does not allow");
	return 0;
}

/* What `ls-files --debug` prints behind each name; how much of it there is, 0 when it is not that.
 */
static size_t parse_debug(const char *text, unsigned *flags)
{
	unsigned bits = 0;
	int used = 0;

	if (sscanf(text,
		   " ctime: %*u:%*u mtime: %*u:%*u dev: %*u ino: %*u uid: %*u gid: %*u size: %*u "
		   "flags: %x%n",
		   &bits, &used) != 1 ||
	    text[used] != '\n')
		return 0;
	*flags = (bits & 0x8000 ? INDEX_ASSUME_VALID : 0) |
		 (bits & 0x40000000 ? INDEX_SKIP_WORKTREE : 0) |
		 (bits & 0x20000000 ? INDEX_INTENT_TO_ADD : 0);
	return (size_t)used + 1;
}

static int parse_list(struct index_entries *entries, bool sha256, struct error *err)
{
	struct buf *text = &entries->text;

	for (size_t at = 0; at < text->len;) {
		struct index_entry entry = { 0 };

		if (parse_entry(text->data + at, sha256, &entry, err) < 0)
			return -1;
		at = (size_t)(entry.path - text->data) + strlen(entry.path) + 1;

		size_t used = at < text->len ? parse_debug(text->data + at, &entry.flags) : 0;

		if (!used)
			return bad_index(err, "details that git prints in an unknown way");
		at += used;
		if (entries->count == entries->cap) {
			entries->cap = entries->cap ? entries->cap * 2 : 256;
			entries->items = xreallocarray(entries->items, entries->cap,
						       sizeof(*entries->items));
		}
		entries->items[entries->count++] = entry;
	}
	return 0;
}

static int list_entries(const struct git_quarantine *q, const char *git_dir, const char *file,
			struct index_entries *entries, struct error *err)
{
	_cleanup_strv_ char **env = git_objects_env(q, NULL);
	struct git_call call = {
		.repo = q->repo,
		.args = GIT_ARGS("ls-files", "--stage", "--debug", "-z"),
		.git_dir = git_dir,
		.max_output = LIST_MAX,
		.hostile = true,
	};

	strv_push(&env, xasprintf("GIT_INDEX_FILE=%s", file));
	call.env = env;
	if (git_run(&call, &entries->text, NULL, err) < 0)
		return -1;
	return parse_list(entries, q->sha256, err);
}

int index_entries_host(const struct git_quarantine *q, struct index_entries *entries,
		       struct error *err)
{
	_cleanup_free_ char *file = path_join(q->repo->git_dir, "index");

	return list_entries(q, q->repo->git_dir, file, entries, err);
}

/* Files named sharedindex.<hex> of what was fetched: one of them is the other half. */
static int fetch_shared(const struct git_quarantine *q, int fetched_fd, const struct buf *index,
			struct error *err)
{
	const char *link = memmem(index->data, index->len, "link", 4);
	size_t raw_len = q->sha256 ? 32 : 20;
	char hex[65], name[80];
	_cleanup_buf_ struct buf shared = { 0 };
	bool there;

	/* The extension: "link", four bytes of length, the name. Elsewhere it is part of a path,
	 * and the file of that name will not be there. */
	while (link && (size_t)(index->data + index->len - link) >= 8 + raw_len) {
		hex_encode(hex, link + 8, raw_len);
		snprintf(name, sizeof(name), "sharedindex.%s", hex);
		buf_reset(&shared);
		if (git_fetched_read(fetched_fd, name, GIT_INDEX_MAX, &shared, &there, err) < 0)
			return -1;
		if (!there && git_read_file(q->repo, q->repo->git_dir, name, GIT_INDEX_MAX, &shared,
					    &there, err) < 0)
			return -1;
		if (there)
			return git_quarantine_write(q, q->private, name, shared.data, shared.len,
						    err);
		link = memmem(link + 4, (size_t)(index->data + index->len - link) - 4, "link", 4);
	}
	return 0;
}

int index_entries_fetch(const struct git_quarantine *q, int fetched_fd,
			struct index_entries *entries, bool *there, struct error *err)
{
	_cleanup_buf_ struct buf index = { 0 };
	_cleanup_free_ char *file = path_join(q->private, "place-index");

	if (git_fetched_read(fetched_fd, "index", GIT_INDEX_MAX, &index, there, err) < 0)
		return -1;
	*there = *there && index.len;
	if (!*there)
		return 0;
	if (fetch_shared(q, fetched_fd, &index, err) < 0 ||
	    git_quarantine_write(q, q->private, "place-index", index.data, index.len, err) < 0)
		return -1;
	return list_entries(q, q->private, file, entries, err);
}

bool index_entries_equal(const struct index_entries *a, const struct index_entries *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct index_entry *x = &a->items[i], *y = &b->items[i];

		if (x->mode != y->mode || x->stage != y->stage || !streq(x->oid, y->oid) ||
		    !streq(x->path, y->path) || ((x->flags ^ y->flags) & INDEX_INTENT_TO_ADD))
			return false;
	}
	return true;
}

static int update_index(const struct git_quarantine *q, char *const *env, const char *const *args,
			const struct buf *input, struct error *err)
{
	struct git_call call = {
		.repo = q->repo,
		.args = args,
		.env = env,
		.git_dir = q->private,
		.input = buf_str(input),
		.input_len = input->len,
		.timeout_ms = GIT_LONG_TIMEOUT_MS,
		.writes = true,
	};

	return git_run(&call, NULL, NULL, err);
}

/* Both lists are in git's order of names. */
static unsigned flags_of_host(const struct index_entries *old, size_t *at, const char *path)
{
	while (*at < old->count && strcmp(old->items[*at].path, path) < 0)
		(*at)++;
	if (*at < old->count && streq(old->items[*at].path, path))
		return old->items[*at].flags;
	return 0;
}

static bool file_is_there(const struct git_repo *repo, const char *path)
{
	_cleanup_error_ struct error none = { 0 };
	_cleanup_close_ int fd = -1;

	return path_open_beneath(repo->root_fd, path, O_PATH | O_NOFOLLOW, 0, &fd, &none) == 0;
}

struct index_lists {
	struct buf entries, assumed, skipped, intended;
};

static void index_lists_clear(struct index_lists *l)
{
	buf_free(&l->entries);
	buf_free(&l->assumed);
	buf_free(&l->skipped);
	buf_free(&l->intended);
}

static void make_lists(const struct git_quarantine *q, const struct index_entries *entries,
		       const struct index_entries *old, struct index_lists *l)
{
	size_t at = 0;

	for (size_t i = 0; i < entries->count; i++) {
		const struct index_entry *e = &entries->items[i];
		unsigned host = flags_of_host(old, &at, e->path);
		size_t len = strlen(e->path) + 1;

		if (e->flags & INDEX_INTENT_TO_ADD) {
			if (file_is_there(q->repo, e->path))
				buf_append(&l->intended, e->path, len);
			continue;
		}
		buf_printf(&l->entries, "%06o %s %u\t", e->mode, e->oid, e->stage);
		buf_append(&l->entries, e->path, len);
		if (e->stage == 0 && (host & INDEX_ASSUME_VALID))
			buf_append(&l->assumed, e->path, len);
		if (e->stage == 0 && (host & INDEX_SKIP_WORKTREE))
			buf_append(&l->skipped, e->path, len);
	}
}

int index_entries_write(const struct git_quarantine *q, const char *file,
			const struct index_entries *entries, const struct index_entries *old,
			struct error *err)
{
	_cleanup_(index_lists_clear) struct index_lists l = { 0 };
	_cleanup_strv_ char **env = git_objects_env(q, NULL);
	struct git_call refresh = {
		.repo = q->repo,
		.args = GIT_ARGS("update-index", "-q", "--refresh"),
		.git_dir = q->private,
		.timeout_ms = GIT_LONG_TIMEOUT_MS,
		.writes = true,
	};
	const struct buf none = { 0 };
	int status;

	make_lists(q, entries, old, &l);
	strv_push(&env, xasprintf("GIT_INDEX_FILE=%s", file));
	/* First an empty one: from an empty list update-index makes no file at all. */
	if (update_index(q, env, GIT_ARGS("read-tree", "--empty"), &none, err) < 0 ||
	    update_index(q, env, GIT_ARGS("update-index", "-z", "--index-info"), &l.entries, err) <
		    0)
		return -1;
	if (l.intended.len && update_index(q, env,
					   GIT_ARGS("add", "-N", "-f", "--pathspec-from-file=-",
						    "--pathspec-file-nul"),
					   &l.intended, err) < 0)
		return -1;
	if (l.skipped.len &&
	    update_index(q, env, GIT_ARGS("update-index", "-z", "--skip-worktree", "--stdin"),
			 &l.skipped, err) < 0)
		return -1;
	/* Its status tells whether some file differs, which is no failure. */
	refresh.env = env;
	if (git_run(&refresh, NULL, &status, err) < 0)
		return -1;
	if (!l.assumed.len)
		return 0;
	return update_index(q, env, GIT_ARGS("update-index", "-z", "--assume-unchanged", "--stdin"),
			    &l.assumed, err);
}
